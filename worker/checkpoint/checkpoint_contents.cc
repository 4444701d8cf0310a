#include "worker/checkpoint/checkpoint_contents.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/optimizer_slots.h"
#include "common/model/optimizer_variables.h"

namespace cairn {

std::vector<SafetensorView> ModelTensors(const CheckpointContents& c) {
  std::vector<SafetensorView> tensors;
  for (const Variable& v : c.graph->variables()) {
    tensors.push_back(
        {v.name, v.shape, c.values.floats().subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size))});
  }
  return tensors;
}

std::vector<SafetensorView> OptimizerTensors(const CheckpointContents& c) {
  const v1::Optimizer& optimizer = c.manifest.spec.optimizer();
  CAIRN_CHECK(SlotNames(optimizer).size() == c.slots.size(), "slots of another optimizer");
  std::vector<SafetensorView> tensors;
  for (const Variable& v : c.graph->variables()) {
    if (v.kind != VariableKind::kTrainable) continue;
    for (const SlotTensor& t : SlotTensorsOf(optimizer, v)) {
      const absl::Span<const float> slot = c.slots[static_cast<size_t>(t.slot)].floats();
      tensors.push_back(
          {absl::StrCat(v.name, "/", t.name), t.shape,
           slot.subspan(static_cast<size_t>(v.offset + t.offset), static_cast<size_t>(NumElements(t.shape)))});
    }
  }
  return tensors;
}

std::map<std::string, std::string> TensorsMetadata(const CheckpointManifest& manifest) {
  return {{"format", "cairn"}, {"job", manifest.spec.name()}, {"step", absl::StrCat(manifest.step)}};
}

void StampManifest(int64_t now_unix_ms, CheckpointManifest& manifest) {
  manifest.library_version = CAIRN_VERSION;
  manifest.written_unix_ms = now_unix_ms;
}

}  // namespace cairn
