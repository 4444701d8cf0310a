// What a step on a GPU costs on paper: the launches of a plan with the bytes that they read and write and their FLOP,
// by class, at given ceilings. Needs no GPU: libraries' workspaces and what caches save are not counted.
//
//   gpu_plan MODEL BATCH float32|bfloat16|float16 [--bandwidth TB/s] [--flops TFLOP/s] [--steps]
//
// Inputs are bytes, as of pictures. The floor is that of the same tensors, each written once and read once.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/model/ready_made/ready_made.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn {
namespace {

struct Ceilings {
  double bandwidth = 3.0;  // TB/s
  double flops = 750;      // TFLOP/s
};

struct Cost {
  int launches = 0;
  double read = 0, written = 0, flop = 0, ms = 0;
  void Add(const Cost& c) {
    launches += c.launches;
    read += c.read;
    written += c.written;
    flop += c.flop;
    ms += c.ms;
  }
};

double Milliseconds(double bytes, double flop, const Ceilings& ceilings) {
  return std::max(bytes / ceilings.bandwidth, flop / ceilings.flops) * 1e-9;
}

Cost CostOf(const cudnn::Plan::Step& step, const Ceilings& ceilings) {
  Cost c{1, static_cast<double>(step.bytes_read), static_cast<double>(step.bytes_written), step.flop};
  c.ms = Milliseconds(c.read + c.written, c.flop, ceilings);
  return c;
}

// "normalize add relu" of "%5 = normalize add relu of ...": the words before the first number. Products are named by
// their operands.
std::string ClassOf(const cudnn::Plan::Step& step) {
  const size_t begin = step.text.find(" = ") + 3, end = step.text.find(" of ", begin);
  std::string name, text = step.text.substr(begin, end - begin) + " ";
  for (size_t at = 0; at < text.size();) {
    const size_t space = text.find(' ', at);
    const std::string word = text.substr(at, space - at);
    at = space + 1;
    const bool product = name.starts_with("product");
    if (product ? word == "ta" || word == "tb" : !word.empty() && std::isalpha(word[0]) != 0) {
      name += (name.empty() ? "" : " ") + word;
    } else if (!product) {
      break;
    }
  }
  return name == "product ta" ? "product backward filter" : name == "product tb" ? "product backward data" : name;
}

// All tensors of the plan: each is written once if any step writes it, and read once if any step reads it.
double FloorBytes(const cudnn::Plan& plan) {
  double bytes = 0;
  std::set<std::tuple<bool, int, int, int64_t>> seen;
  for (const cudnn::Plan::Step& step : plan.steps()) {
    for (const auto* refs : {&step.reads, &step.writes}) {
      for (const cudnn::Ref& ref : *refs) {
        if (ref.place != cudnn::Ref::kArena ||
            !seen.insert({refs == &step.reads, ref.place, ref.buffer, ref.offset}).second)
          continue;
        bytes += static_cast<double>(plan.buffers()[ref.buffer].bytes);
      }
    }
  }
  return bytes;
}

void PrintRow(const std::string& name, const Cost& c) {
  std::printf("%-44s %5d %9.1f %9.1f %9.2f %8.3f\n", name.c_str(), c.launches, c.read / 1e6, c.written / 1e6,
              c.flop / 1e12, c.ms);
}

int Print(const std::string& name, int64_t batch, cudnn::DType type, const Ceilings& ceilings, bool steps) {
  v1::ReadyMade ready_made;
  ready_made.set_name(name);
  const auto layers = MakeReadyMade(ready_made);
  const absl::StatusOr<Graph> graph = layers.ok() ? Graph::Build(*layers) : layers.status();
  cudnn::LoweringOptions options;
  options.examples = batch;
  options.precision.type = type;
  options.inputs = Element::kByte;
  options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  cudnn::HostMachine machine(options.precision);
  absl::StatusOr<std::unique_ptr<cudnn::Plan>> plan = absl::UnknownError("no model");
  if (!graph.ok()) plan = graph.status();
  if (graph.ok()) {
    options.loss_plan = PlanLoss(*graph, options.loss);
    plan = cudnn::LowerGraph(*graph, options, machine);
  }
  if (!plan.ok()) {
    std::fprintf(stderr, "gpu_plan: %s\n", std::string(plan.status().message()).c_str());
    return 1;
  }
  std::printf("%-44s %5s %9s %9s %9s %8s\n", "", "steps", "MB read", "MB writ.", "TFLOP", "ms");
  std::map<std::string, Cost> by_class;
  Cost all;
  for (const cudnn::Plan::Step& step : (*plan)->steps()) {
    const Cost c = CostOf(step, ceilings);
    by_class[ClassOf(step)].Add(c);
    all.Add(c);
    if (steps) PrintRow(step.text.substr(0, 44), c);
  }
  if (steps) std::printf("\n");
  std::vector<std::pair<std::string, Cost>> rows(by_class.begin(), by_class.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  for (const auto& [what, cost] : rows) PrintRow(what, cost);
  PrintRow("all", all);
  const double floor = FloorBytes(**plan);
  std::printf("\n%s, batch %lld, %s, arena %.1f MB: %.3f ms, %.0f images/s at %.2f TB/s and %.0f TFLOP/s\n",
              name.c_str(), static_cast<long long>(batch), cudnn::Name(type),
              static_cast<double>((*plan)->arena_bytes()) / 1e6, all.ms, static_cast<double>(batch) / all.ms * 1e3,
              ceilings.bandwidth, ceilings.flops);
  std::printf("each tensor written once and read once: %.3f GB of %.3f GB, %.3f ms; FLOP alone: %.3f ms\n", floor / 1e9,
              (all.read + all.written) / 1e9, floor / ceilings.bandwidth * 1e-9, all.flop / ceilings.flops * 1e-9);
  // Values and gradients have 16 bits if the program computes in 16 bits: the job's wire_dtype would be such a type.
  const auto numbers = static_cast<double>(batch * NumElements(graph->input_shape())),
             space = static_cast<double>(graph->space_size());
  const auto element = static_cast<double>(cudnn::SizeOf(type));
  std::printf("across the bus: inputs %.1f MB (as float32 %.1f), values %.1f MB, gradients %.1f MB\n", numbers / 1e6,
              numbers * 4 / 1e6, space * element / 1e6, space * element / 1e6);
  return 0;
}

int Main(int argc, char** argv) {
  Ceilings ceilings;
  bool steps = false, known = argc >= 4;
  const std::map<std::string, cudnn::DType> types = {
      {"float32", cudnn::DType::kFloat32}, {"bfloat16", cudnn::DType::kBFloat16}, {"float16", cudnn::DType::kFloat16}};
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--steps") {
      steps = true;
    } else if ((word == "--bandwidth" || word == "--flops") && i + 1 < argc) {
      (word == "--flops" ? ceilings.flops : ceilings.bandwidth) = std::atof(argv[++i]);
    } else {
      known = false;
    }
  }
  known = known && types.contains(argv[3]) && std::atoll(argv[2]) > 0 && ceilings.bandwidth > 0 && ceilings.flops > 0;
  if (known) return Print(argv[1], std::atoll(argv[2]), types.at(argv[3]), ceilings, steps);
  std::fprintf(stderr,
               "usage: gpu_plan MODEL BATCH float32|bfloat16|float16 [--bandwidth TB/s] [--flops TFLOP/s] [--steps]\n");
  return 2;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
