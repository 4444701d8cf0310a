#include "worker/train/prediction.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "worker/limits.h"

namespace cairn {

static_assert(std::endian::native == std::endian::little, "outputs travel as they lie in memory");

absl::StatusOr<std::string> PredictBlocks(Program& program, const JobModel& model, const ExampleRange& examples,
                                          absl::Span<const float> values, const std::atomic<bool>& stop) {
  const PlaceRange places = examples.places;
  const size_t example_bytes = static_cast<size_t>(NumElements(model.graph->output().output)) * sizeof(float);
  std::string outputs;
  outputs.reserve(static_cast<size_t>(places.size()) * example_bytes);
  for (int64_t begin = places.begin; begin < places.end; begin += model.options.batch_max) {
    if (stop) return absl::CancelledError("stopped");
    const PlaceRange block{begin, std::min(begin + model.options.batch_max, places.end)};
    CAIRN_ASSIGN_OR_RETURN(const Batch batch, ReadBatch(examples.dataset, examples.split, block));
    CAIRN_ASSIGN_OR_RETURN(const Buffer computed, program.Predict(batch, values));
    if (computed.size() != static_cast<size_t>(block.size()) * example_bytes) {
      return absl::InternalError(absl::StrCat("the backend gave ", computed.size(), " bytes of outputs for ",
                                              block.size(), " examples of ", example_bytes));
    }
    outputs.append(reinterpret_cast<const char*>(computed.data()), computed.size());
  }
  return outputs;
}

std::vector<std::string> InputNames(const ExampleRange& examples, size_t bytes_max) {
  std::vector<std::string> names;
  size_t bytes = 0;
  for (int64_t i = examples.places.begin; i < examples.places.end; ++i) {
    const std::string name = ToUtf8(examples.dataset.NameOf(examples.split, i));
    bytes += names.emplace_back(CutUtf8(name, kInputNameBytesMax)).size() + kInputNameHeadBytes;
    if (bytes > bytes_max) return {};
  }
  return names;
}

}  // namespace cairn
