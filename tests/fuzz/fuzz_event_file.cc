// TensorBoard's event files, as a worker reads those of the worker before it.
//
//   input := form:u8 (0 modulo 2: a whole file; else records, sealed here: Block(record) each) Rest
#include "common/base/crc32c.h"
#include "common/formats/tensorboard.h"
#include "tests/fuzz/input.h"

namespace cairn {
namespace {

void Check(ByteSource in) {
  static const FuzzFolder folder;
  std::string bytes;
  size_t records = 0;
  if (in.Below(2) == 0) {
    bytes = in.Rest();
  } else {
    for (; !in.empty(); ++records) AppendRecord(in.Block(), &bytes);
  }
  folder.Write("events", bytes);
  const auto events = ReadEvents(folder / "events");
  MustBeOk(events.status());
  CAIRN_CHECK(events->size() <= bytes.size() / 16, "more events than records fit");
  if (records > 0) CAIRN_CHECK(events->size() <= records, "more events than records");
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
