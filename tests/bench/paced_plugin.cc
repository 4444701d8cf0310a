// A libcairn_cudnn.so whose device is a clock (host_share_bench.py): a step takes CAIRN_PACED_MS, a third of it
// forward, and computes nothing, but what a worker's host does for a GPU is done: values are rounded and copied to
// where the device would get them from, each layer waits for its values, and a gradient of the job's wire type (0.001
// everywhere) is handed over range by range at the time at which the backward pass of the layers behind it would be
// through. So a job of it costs what push, update, log and pull cost, beside a device that needs no CPU.
//
// Layers share the time by their products: a convolution's kernel counts for each place of its output. One replica a
// worker.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/tensor/dtype.h"
#include "worker/backend/gradient_tracker.h"
#include "worker/backend/plugin.h"

namespace cairn {
namespace {

constexpr int64_t kChunkNumbers = 1 << 20;  // as CudnnProgram copies values
constexpr int kStepsOfALine = 20;

class PacedJoin : public GradientJoin {
 public:
  explicit PacedJoin(JoinOptions options) : options_(std::move(options)), into_(options_.into) {
    uint64_t begin = 0;
    for (const int64_t end : options_.ends) {
      v1::PartitionRange& range = ranges_.emplace_back();
      range.set_begin(begin);
      range.set_end(begin = static_cast<uint64_t>(end));
    }
  }
  const std::vector<v1::PartitionRange>& ranges() const { return ranges_; }
  v1::DataType type() const { return options_.type; }
  void Copy(uint32_t range, const char* pinned) {
    const size_t at = ranges_[range].begin() * SizeOf(type()),
                 bytes = (ranges_[range].end() - ranges_[range].begin()) * SizeOf(type());
    std::memcpy(into_.mutable_data() + at, pinned + at, bytes);
    options_.ready(range);
  }

 private:
  const JoinOptions options_;
  Buffer into_;
  std::vector<v1::PartitionRange> ranges_;
};

class PacedProgram : public Program {
 public:
  PacedProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options, absl::Duration compute)
      : graph_(std::move(graph)),
        options_(options),
        compute_(compute),
        pinned_values_(graph_->space_size() * sizeof(float)) {
    double all = 0;
    for (const Variable& v : graph_->variables()) {
      const Shape& output = graph_->nodes()[v.node].output;
      double places = 1;
      for (size_t axis = 0; axis + 1 < output.size(); ++axis) places *= static_cast<double>(output[axis]);
      shares_.push_back(places * static_cast<double>(v.size));
      all += shares_.back();
    }
    for (double& share : shares_) share /= all;
    std::vector<float> gradient(graph_->space_size());
    for (const Variable& v : graph_->variables()) std::fill_n(gradient.begin() + v.offset, v.size, 1e-3f);

    for (auto& [type, bytes] : pinned_gradient_) bytes.resize(gradient.size() * SizeOf(type));
    for (auto& [type, bytes] : pinned_gradient_)
      FromFloat(gradient, type, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
  }

  absl::StatusOr<BatchSums> TrainJoined(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                        const std::shared_ptr<GradientJoin>& join, uint32_t,
                                        const GradientReady& ready) override {
    auto& sum = static_cast<PacedJoin&>(*join);
    const absl::Time begin = absl::Now();
    absl::Time device = begin;
    int64_t brought = 0;
    const auto& variables = graph_->variables();
    for (size_t v = 0; v < variables.size(); ++v) {
      for (const int64_t wanted = variables[v].offset + variables[v].size; brought < wanted;)
        brought = Bring(values, info.values, brought);
      device = std::max(device, absl::Now()) + compute_ / 3 * shares_[v];
    }
    Note(begin);
    GradientTracker tracker(sum.ranges());
    int64_t end = graph_->space_size();
    for (size_t v = variables.size(); v-- > 0;) {
      device += compute_ * 2 / 3 * shares_[v];
      absl::SleepFor(device - absl::Now());
      if (ready) ready(variables[v].offset, end);
      if (info.last_piece)
        tracker.Final(variables[v].offset, end, [&](uint32_t first, uint32_t last) {
          for (uint32_t range = last; range-- > first;) sum.Copy(range, pinned_gradient_[sum.type()].data());
        });
      end = variables[v].offset;
    }
    ended_ = absl::Now();
    return BatchSums{static_cast<uint64_t>(batch.examples), static_cast<double>(batch.examples),
                     std::vector<double>(options_.metrics.size())};
  }
  absl::StatusOr<BatchSums> TrainStep(const Batch&, const StepInfo&, absl::Span<const float>, absl::Span<float>,
                                      const GradientReady&) override {
    return absl::UnimplementedError("the paced device has gradients of 16 bits of one replica only");
  }
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float>) override {
    return BatchSums{static_cast<uint64_t>(batch.examples), 0, std::vector<double>(options_.metrics.size())};
  }
  absl::StatusOr<Buffer> Predict(const Batch&, absl::Span<const float>) override {
    return absl::UnimplementedError("the paced device predicts nothing");
  }
  uint64_t memory_bytes() const override { return 0; }

 private:
  int64_t Bring(absl::Span<const float> values, v1::DataType type, int64_t begin) {
    const int64_t end = std::min(begin + kChunkNumbers, graph_->space_size());
    FromFloat(values.subspan(begin, end - begin), type,
              {reinterpret_cast<uint8_t*>(pinned_values_.data()) + begin * SizeOf(type),
               static_cast<size_t>(end - begin) * SizeOf(type)});
    return end;
  }

  // Records how long the step before it took, and where.
  void Note(absl::Time begin) {
    const absl::Time now = absl::Now();
    if (steps_++ > 0) {
      between_ += begin - ended_;
      all_ += begin - begun_;
    }
    values_time_ += now - begin;
    begun_ = begin;
    if (steps_ <= kStepsOfALine) return;
    const double n = kStepsOfALine;
    LogInfo("paced: step %.2f ms, device %.2f, between steps %.2f, values brought in %.2f",
            absl::ToDoubleMilliseconds(all_) / n, absl::ToDoubleMilliseconds(compute_),
            absl::ToDoubleMilliseconds(between_) / n, absl::ToDoubleMilliseconds(values_time_) / (n + 1));
    steps_ = 0;
    all_ = between_ = values_time_ = absl::ZeroDuration();
  }

  const std::shared_ptr<const Graph> graph_;
  const ProgramOptions options_;
  const absl::Duration compute_;
  std::vector<double> shares_;  // by variable, of the time
  std::vector<char> pinned_values_;
  std::map<v1::DataType, std::vector<char>> pinned_gradient_ = {{v1::BFLOAT16, {}}, {v1::FLOAT16, {}}};
  absl::Time begun_, ended_;
  absl::Duration all_, between_, values_time_;
  int steps_ = 0;
};

class PacedBackend : public Backend {
 public:
  explicit PacedBackend(absl::Duration compute) : compute_(compute) {}
  std::string name() const override { return "paced"; }
  std::string device() const override { return "gpu: none, a clock"; }
  std::string fingerprint() const override { return "paced"; }
  v1::Device kind() const override { return v1::GPU; }
  bool Computes(v1::DataType) const override { return true; }
  int slots_default() const override { return 1; }
  bool joins() const override { return true; }
  absl::StatusOr<std::shared_ptr<GradientJoin>> Join(const std::shared_ptr<const Graph>&,
                                                     JoinOptions options) override {
    return std::make_shared<PacedJoin>(std::move(options));
  }
  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph,
                                                   const ProgramOptions& options) override {
    return std::make_unique<PacedProgram>(std::move(graph), options, compute_);
  }

 private:
  const absl::Duration compute_;
};

absl::StatusOr<std::unique_ptr<Backend>> MakePacedBackend(const PluginOptions&) {
  const char* text = std::getenv("CAIRN_PACED_MS");
  double ms = 0;
  if (text != nullptr && (!absl::SimpleAtod(text, &ms) || ms < 0))
    return absl::UnavailableError("CAIRN_PACED_MS is not a time");
  return std::make_unique<PacedBackend>(absl::Milliseconds(ms));
}

}  // namespace
}  // namespace cairn

extern "C" const cairn::Plugin* cairn_backend_plugin() {
  static const cairn::Plugin plugin{&cairn::PluginVersion, &cairn::MakePacedBackend};
  return &plugin;
}
