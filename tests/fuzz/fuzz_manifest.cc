// A checkpoint's manifest.json: any text, and well-formed manifests that say anything. What is taken can be written and
// read again.
//
//   input := form:u8 (0: Rest is the text; 1: the text without its checksum; 2: alterations of a right one)
#include "common/base/digest.h"
#include "tests/fuzz/alter.h"
#include "tests/fuzz/manifest_seed.h"

namespace cairn {
namespace {

CheckpointManifest Altered(ByteSource& in) {
  CheckpointManifest m = SmallManifest(in.Below(2) == 1);
  while (!in.empty()) {
    CheckpointPartition& p = m.partitions[in.Below(m.partitions.size())];
    switch (in.Below(12)) {
      case 0: Alter(in, &m.spec); break;
      case 1: p.begin = in.Edge(); break;
      case 2: p.end = in.Edge(); break;
      case 3: p.version = in.Edge(); break;
      case 4: p.sequences.push_back(in.Edge()); break;
      case 5: p.sequences.clear(); break;
      case 6: m.step = static_cast<int64_t>(in.Edge()); break;
      case 7: m.replica_step.push_back(static_cast<int64_t>(in.Edge())); break;
      case 8: m.total_steps = static_cast<int64_t>(in.Edge()); break;
      case 9: m.steps_per_epoch = static_cast<int64_t>(in.Edge() >> 1 | 1); break;
      case 10: m.files[std::string(in.Bytes(in.Below(8)))].bytes = in.Edge(); break;
      case 11:
        if (m.partitions.size() > 1) m.partitions.pop_back();
        break;
    }
  }
  return m;
}

// Adds the checksum that the text should have.
std::string Sealed(std::string text) {
  if (!text.ends_with(kManifestEnd)) return text;
  Digest digest;
  digest.Add(text.data(), text.size());
  text.resize(text.size() - kManifestEnd.size());
  return text + std::string(kManifestSeal) + digest.Hex() + "\"" + std::string(kManifestEnd);
}

std::string Text(ByteSource& in) {
  switch (in.Below(3)) {
    case 0: return std::string(in.Rest());
    case 1: return Sealed(std::string(in.Rest()));
    default: return EncodeManifest(Altered(in));
  }
}

void Check(ByteSource in) {
  const std::string text = Text(in);
  const absl::StatusOr<CheckpointManifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return;
  // Fields of a newer library are omitted when it is written again; the rest is a valid manifest.
  const std::string again = EncodeManifest(*manifest);
  const absl::StatusOr<CheckpointManifest> reread = ParseManifest(again);
  MustBeOk(reread.status());
  CAIRN_CHECK(EncodeManifest(*reread) == again, "other bytes for the same manifest");
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
