// What a step on a GPU takes: images/s of TrainStep alone, without a ps and without data; the gradient reaches the
// host.
//
//   gpu_bench MODEL BATCH float32|tf32|bfloat16 [STEPS]
//
// Exit 77 with the reason where there is no device.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/digest.h"
#include "common/model/initializer.h"
#include "common/model/ready_made/ready_made.h"
#include "worker/node/backend_select.h"

namespace cairn {
namespace {

constexpr int kSkip = 77;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "gpu_bench: %s\n", std::string(status.message()).c_str());
  return absl::IsUnavailable(status) ? kSkip : 1;
}

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

int Step(const std::string& name, int64_t batch_size, const std::string& precision, int steps) {
  auto backend = SelectBackend("gpu");
  if (!backend.ok()) return Fail(backend.status());
  v1::ReadyMade ready_made;
  ready_made.set_name(name);
  const auto layers = MakeReadyMade(ready_made);
  if (!layers.ok()) return Fail(layers.status());
  auto built = Graph::Build(*layers);
  if (!built.ok()) return Fail(built.status());
  const auto graph = std::make_shared<const Graph>(*std::move(built));

  ProgramOptions options;
  options.batch_max = batch_size;
  options.inputs = Element::kByte;
  options.compute = precision == "bfloat16" ? v1::BFLOAT16 : v1::FLOAT32;
  options.allow_tf32 = precision == "tf32";
  options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  auto program = (*backend)->Compile(graph, options);
  if (!program.ok()) return Fail(program.status());
  std::vector<float> values(graph->space_size()), gradients(graph->space_size());
  InitializeRange(*graph, 1, 0, absl::MakeSpan(values));
  Batch batch;
  batch.examples = batch_size;
  const int64_t numbers = batch_size * NumElements(graph->input_shape()), classes = graph->output().output.back();
  batch.element = Element::kByte;
  batch.inputs = Buffer::Allocate(numbers);
  batch.labels = Buffer::Allocate(batch_size * sizeof(float));
  uint32_t random = 1;
  for (int64_t i = 0; i < numbers; ++i)
    batch.inputs.mutable_data()[i] = static_cast<uint8_t>((random = random * 1664525 + 1013904223) >> 24);
  for (int64_t i = 0; i < batch_size; ++i) batch.labels.mutable_floats()[i] = static_cast<float>(i % classes);

  std::vector<double> seconds;
  for (int s = -10; s < steps; ++s) {  // the first ones compile and capture
    const absl::Time begin = absl::Now();
    bool ahead = true;  // as the trainer does it
    const auto sums = (*program)->TrainStep(batch, {.seed = 1, .step = static_cast<uint64_t>(s + 10), .replica = 0},
                                            values, absl::MakeSpan(gradients), [&](int64_t, int64_t) {
                                              if (std::exchange(ahead, false)) (*program)->Prefetch(batch);
                                            });
    if (!sums.ok()) return Fail(sums.status());
    if (s >= 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
  }
  const double median = Median(seconds);
  std::printf(
      "{\"model\": \"%s\", \"batch\": %lld, \"precision\": \"%s\", \"step_ms\": %.3f, \"images_per_second\": %.1f, "
      "\"memory_bytes\": %llu, \"gradients_xxh3\": \"%016llx\"}\n",
      name.c_str(), static_cast<long long>(batch_size), precision.c_str(), median * 1e3,
      static_cast<double>(batch_size) / median, static_cast<unsigned long long>((*program)->memory_bytes()),
      static_cast<unsigned long long>(Checksum(gradients.data(), gradients.size() * sizeof(float))));
  return 0;
}

int Main(int argc, char** argv) {
  if (argc >= 4) return Step(argv[1], std::atoll(argv[2]), argv[3], argc > 4 ? std::atoi(argv[4]) : 50);
  std::fprintf(stderr, "usage: gpu_bench MODEL BATCH float32|tf32|bfloat16 [STEPS]\n");
  return 2;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
