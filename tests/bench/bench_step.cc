// bench_step MODEL [--batch 8] [--threads 1] [--rounds 7] [--count 5] [--bfloat16]: forward and backward of a model,
// which is a `model { ... }` of a job file without its braces, by OnednnBackend. Its last layer gives probabilities of
// classes. Prints the milliseconds of a step: the fastest round, and the median. vs_torch/layers.py runs it beside
// PyTorch.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/model/initializer.h"
#include "common/model/ready_made/ready_made.h"
#include "google/protobuf/text_format.h"
#include "worker/backend/onednn/onednn_backend.h"

namespace cairn::bench {
namespace {

struct Size {
  int batch = 8, threads = 1, rounds = 7, count = 5;
  bool bfloat16 = false;  // compute_dtype BFLOAT16
};

template <typename T>
T Need(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "bench_step: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

v1::Model ReadModel(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  v1::Model model;
  if (!file || !google::protobuf::TextFormat::ParseFromString(text, &model)) {
    std::fprintf(stderr, "bench_step: %s is not the text of a model\n", path.c_str());
    std::exit(1);
  }
  return model.has_ready_made() ? Need(MakeReadyMade(model.ready_made())) : model;
}

// Numbers in [-1, 1) and classes, from a fixed generator.
Batch MakeBatch(const Graph& graph, int64_t examples) {
  Batch batch;
  batch.examples = examples;
  batch.inputs = Buffer::Allocate(sizeof(float) * examples * NumElements(graph.input_shape()));
  batch.labels = Buffer::Allocate(sizeof(float) * examples);
  uint32_t state = 1;
  const auto next = [&state] { return state = state * 1664525 + 1013904223; };
  for (float& v : batch.inputs.mutable_floats()) v = static_cast<float>(next() >> 8) / (1 << 23) - 1;
  const auto classes = static_cast<uint32_t>(NumElements(graph.nodes().back().output));
  for (float& v : batch.labels.mutable_floats()) v = static_cast<float>((next() >> 16) % classes);
  return batch;
}

void Measure(const v1::Model& model, const Size& size) {
  const auto graph = std::make_shared<const Graph>(Need(Graph::Build(model)));
  ProgramOptions options;
  options.batch_max = size.batch;
  options.threads = size.threads;
  if (size.bfloat16) options.compute = v1::BFLOAT16;
  options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  const std::unique_ptr<Program> program = Need(MakeOnednnBackend()->Compile(graph, options));
  std::vector<float> values(graph->space_size()), gradients(graph->space_size());
  InitializeRange(*graph, 1, 0, absl::MakeSpan(values));
  const Batch batch = MakeBatch(*graph, size.batch);
  std::vector<double> times;
  for (int round = 0; round <= size.rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < size.count; ++i) {
      Need(program->TrainStep(batch, {}, values, absl::MakeSpan(gradients), nullptr));
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (round > 0) times.push_back(took.count() / size.count);  // the first one warms up
  }
  std::sort(times.begin(), times.end());
  std::printf("%.3f %.3f\n", times.front(), times[times.size() / 2]);
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  CLI::App app{"Forward and backward of a model by the oneDNN backend"};
  std::string path;
  cairn::bench::Size size;
  app.add_option("model", path, "file with the text of a model")->required();
  app.add_option("--batch", size.batch)->check(CLI::PositiveNumber);
  app.add_option("--threads", size.threads)->check(CLI::PositiveNumber);
  app.add_option("--rounds", size.rounds)->check(CLI::PositiveNumber);
  app.add_option("--count", size.count, "steps in a round")->check(CLI::PositiveNumber);
  app.add_flag("--bfloat16", size.bfloat16, "compute_dtype BFLOAT16");
  CLI11_PARSE(app, argc, argv);
  cairn::bench::Measure(cairn::bench::ReadModel(path), size);
  return 0;
}
