// bench_backend [--batch 64] [--seconds 0.2] [--rounds 15] [--threads 1]: what the backend's own part of a step costs.
//
//   cnn      training steps of the small CNN by OnednnBackend (values given, gradients written),
//            against the bare loop of the same primitives, which updates its weights too; one
//            thread. Alternating rounds.
//   mlp      training steps of 784-128-10.
//   two      two programs on two std::threads against one (needs two cores).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/model/initializer.h"
#include "google/protobuf/text_format.h"
#include "tests/bench/bare_onednn.h"
#include "worker/backend/onednn/onednn_backend.h"

namespace cairn::bench {
namespace {

const char kCnn[] =
    "layers { input { shape: [28, 28, 1] } } layers { rescaling { scale: 0.003921569 } } "
    "layers { conv2d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } } layers { max_pooling2d {} } "
    "layers { conv2d { filters: 64 kernel_size: 3 padding: SAME activation: RELU } } layers { max_pooling2d {} } "
    "layers { flatten {} } layers { dense { units: 10 activation: SOFTMAX } }";
const char kMlp[] =
    "layers { input { shape: [28, 28, 1] } } layers { rescaling { scale: 0.003921569 } } layers { flatten {} } "
    "layers { dense { units: 128 activation: RELU } } layers { dense { units: 10 activation: SOFTMAX } }";

struct Speed {
  double wall = 0, cpu = 0;  // images a second of time, and of the process' CPU time
};

class Training {
 public:
  Training(const char* model, int64_t batch, int threads) {
    v1::Model parsed;
    if (!google::protobuf::TextFormat::ParseFromString(model, &parsed)) std::abort();
    graph_ = std::make_shared<const Graph>(Graph::Build(parsed).value());
    ProgramOptions options;
    options.batch_max = batch;
    options.threads = threads;
    options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    options.metrics.emplace_back().set_kind(v1::Metric::ACCURACY);
    program_ = MakeOnednnBackend()->Compile(graph_, options).value();
    values_ = Buffer::Allocate(graph_->space_size() * sizeof(float));
    gradients_ = Buffer::Allocate(graph_->space_size() * sizeof(float));
    InitializeRange(*graph_, 1, 0, values_.mutable_floats());
    for (int b = 0; b < 16; ++b) {
      Batch& one = batches_.emplace_back();
      one.examples = batch;
      one.element = Element::kByte;
      one.inputs = Buffer::Allocate(batch * 784);
      one.labels = Buffer::Allocate(batch * sizeof(float));
      uint32_t x = b + 1;
      for (int64_t i = 0; i < batch * 784; ++i)
        one.inputs.mutable_data()[i] = static_cast<uint8_t>((x = x * 1664525 + 1013904223) >> 24);
      for (float& v : one.labels.mutable_floats()) v = static_cast<float>((x = x * 1664525 + 1013904223) >> 16) / 6554;
      for (float& v : one.labels.mutable_floats()) v = static_cast<float>(static_cast<int>(v));
    }
  }

  // Trains for `seconds`; counts the images into *images.
  void Run(double seconds, double* images) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::duration<double>(seconds)) {
      for (int i = 0; i < 8; ++i) Step(steps_++);
      *images += 8 * static_cast<double>(batches_[0].examples);
    }
  }

  uint64_t memory_bytes() const { return program_->memory_bytes(); }

 private:
  void Step(int64_t s) {
    const StepInfo info{.seed = 1, .step = static_cast<uint64_t>(s), .replica = 0};
    const auto sums =
        program_->TrainStep(batches_[s % 16], info, values_.floats(), gradients_.mutable_floats(), nullptr);
    if (!sums.ok()) {
      std::fprintf(stderr, "%s\n", sums.status().ToString().c_str());
      std::exit(1);
    }
  }

  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<Program> program_;
  Buffer values_, gradients_;
  std::vector<Batch> batches_;
  int64_t steps_ = 0;
};

// Runs all of them at the same time, each on a thread of its own.
Speed Measure(const std::vector<Training*>& trainings, double seconds) {
  std::vector<double> images(trainings.size(), 0.0);
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < trainings.size(); ++i) {
    threads.emplace_back([&, i] { trainings[i]->Run(seconds, &images[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  double sum = 0;
  for (double n : images) sum += n;
  return {sum / wall, sum / cpu};
}

void Print(const char* what, const char* figure, double x) { std::printf("%-4s %-7s %9.0f images/s", what, figure, x); }

// Alternating rounds: the median; the best round too, because a busy machine only slows rounds down; and CPU time.
void Compare(const char* what, int rounds, const std::function<Speed()>& one, const std::function<Speed()>& other,
             const char* against) {
  std::vector<double> wall[2], cpu[2];
  for (int r = 0; r < rounds; ++r) {
    for (int side = 0; side < 2; ++side) {
      const Speed speed = side == 0 ? one() : other();
      wall[side].push_back(speed.wall);
      cpu[side].push_back(speed.cpu);
    }
  }
  const auto row = [&](const char* figure, double x, double y) {
    Print(what, figure, x);
    std::printf(", %s %9.0f, ratio %.3f\n", against, y, x / y);
  };
  for (std::vector<double>* samples : {wall, cpu}) {
    for (int side = 0; side < 2; ++side) std::sort(samples[side].begin(), samples[side].end());
  }
  row("median", wall[0][rounds / 2], wall[1][rounds / 2]);
  row("best", wall[0].back(), wall[1].back());
  row("by CPU", cpu[0][rounds / 2], cpu[1][rounds / 2]);
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  using namespace cairn::bench;  // NOLINT
  CLI::App app("Speed of the oneDNN backend alone.");
  int64_t batch = 64;
  double seconds = 0.2;
  int rounds = 15, threads = 1;
  std::vector<std::string> which = {"cnn", "mlp", "two"};
  app.add_option("--batch", batch, "examples a step")->check(CLI::Range(1, 4096));
  app.add_option("--seconds", seconds, "of a round")->check(CLI::Range(0.1, 600.0));
  app.add_option("--rounds", rounds, "the median counts")->check(CLI::Range(1, 100));
  app.add_option("--threads", threads, "of a program")->check(CLI::Range(1, 64));
  app.add_option("which", which, "cnn, mlp, two");
  CLI11_PARSE(app, argc, argv);
  const auto wanted = [&](const char* name) { return std::count(which.begin(), which.end(), name) > 0; };
  Training cnn(kCnn, batch, threads), second(kCnn, batch, threads), mlp(kMlp, batch, threads);
  const auto one = [&] { return Measure({&cnn}, seconds); };
  if (wanted("cnn")) {
    const auto bare = [&] {
      const BareResult result = RunBareCnn(batch, seconds);
      return Speed{result.images_per_second, result.images_per_cpu_second};
    };
    Compare("cnn", rounds, one, bare, "bare loop");
    std::printf("cnn  memory  %9.1f MB\n", static_cast<double>(cnn.memory_bytes()) / 1e6);
  }
  if (wanted("mlp")) {
    Speed best;
    for (int r = 0; r < rounds; ++r)
      best = std::max(best, Measure({&mlp}, seconds), [](auto& a, auto& b) { return a.wall < b.wall; });
    Print("mlp", "best", best.wall);
    std::printf("\n");
  }
  if (wanted("two"))
    Compare(
        "two", rounds,
        [&] {
          return Measure({&cnn, &second}, seconds);
        },
        one, "one");
}
