// bench_recurrent [--cell lstm] [--units 128] [--features 128] [--steps 64] [--batch 32] [--threads 1] [--rounds 7]
// [--count 20]: forward and backward of a recurrent layer with a dense layer behind its last step, by OnednnBackend.
// Prints the milliseconds of a step: the fastest round, and the median. vs_torch/recurrent.py runs it beside PyTorch.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/initializer.h"
#include "google/protobuf/text_format.h"
#include "worker/backend/onednn/onednn_backend.h"

int main(int argc, char** argv) {
  CLI::App app{"Forward and backward of a recurrent layer"};
  std::string cell = "lstm";
  int units = 128, features = 128, steps = 64, batch_size = 32, threads = 1, rounds = 7, count = 20;
  app.add_option("--cell", cell, "simple_rnn, lstm or gru");
  app.add_option("--units", units);
  app.add_option("--features", features);
  app.add_option("--steps", steps);
  app.add_option("--batch", batch_size);
  app.add_option("--threads", threads);
  app.add_option("--rounds", rounds);
  app.add_option("--count", count, "steps of training in a round");
  CLI11_PARSE(app, argc, argv);

  cairn::v1::Model model;
  const std::string text = absl::StrCat("layers { input { shape: [", steps, ", ", features, "] } } layers { ", cell,
                                        " { units: ", units, " } } layers { dense { units: 10 activation: SOFTMAX } }");
  if (!google::protobuf::TextFormat::ParseFromString(text, &model)) return 1;
  const auto graph = std::make_shared<const cairn::Graph>(cairn::Graph::Build(model).value());
  cairn::ProgramOptions options;
  options.batch_max = batch_size;
  options.threads = threads;
  options.loss.set_kind(cairn::v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  const auto program = cairn::MakeOnednnBackend()->Compile(graph, options).value();
  std::vector<float> values(graph->space_size()), gradients(graph->space_size());
  cairn::InitializeRange(*graph, 1, 0, absl::MakeSpan(values));
  cairn::Batch batch;
  batch.examples = batch_size;
  batch.inputs = cairn::Buffer::Allocate(sizeof(float) * batch_size * steps * features);
  batch.labels = cairn::Buffer::Allocate(sizeof(float) * batch_size);
  uint32_t x = 1;
  for (float& v : batch.inputs.mutable_floats())
    v = static_cast<float>((x = x * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
  for (float& v : batch.labels.mutable_floats()) v = static_cast<float>(((x = x * 1664525 + 1013904223) >> 16) % 10);
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      if (!program->TrainStep(batch, {}, values, absl::MakeSpan(gradients), nullptr).ok()) return 1;
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (round > 0) times.push_back(took.count() / count);  // the first one warms up
  }
  std::sort(times.begin(), times.end());
  std::printf("%.3f %.3f\n", times.front(), times[times.size() / 2]);
  return 0;
}
