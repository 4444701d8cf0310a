// bench_models [--model resnet50] [--batch 8] [--side 112] [--rounds 5] [--frozen]: a training step of a ready-made
// model by OnednnBackend, beside a bare loop of the same primitives: every convolution, dense layer, normalization,
// pooling, addition and activation, forward and backward, each in the layouts that it likes best, without the reorders
// between them. Alternating rounds, by the process' CPU time; the memory of the backend.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/model/initializer.h"
#include "common/model/ready_made/ready_made.h"
#include "dnnl.hpp"
#include "worker/backend/onednn/onednn_backend.h"

namespace cairn::bench {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using Desc = memory::desc;
using Tag = memory::format_tag;

class BareLoop {
 public:
  BareLoop(const Graph& graph, int64_t examples)
      : examples_(examples), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    for (const Node& node : graph.nodes()) {
      if (node.id > 0) AddNode(graph, node);
    }
  }

  void Run() {
    for (const auto& [primitive, arguments] : calls_) primitive.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  Desc Any(const memory::dims& dims, Tag tag = Tag::any) const { return Desc(dims, memory::data_type::f32, tag); }
  memory::dims DimsOf(const Shape& shape) const {
    if (shape.size() == 1) return {examples_, shape[0], 1, 1};
    return {examples_, shape[2], shape[0], shape[1]};
  }
  // In the layout that convolutions prefer.
  Desc ImageOf(const Shape& shape) const {
    const memory::dims dims = DimsOf(shape);
    return Any(dims, dims[1] % 16 == 0 ? Tag::nChw16c : Tag::nhwc);
  }
  // Written once, so that it has pages of its own: memory that was never written would be one page in the cache.
  memory New(const Desc& desc) {
    memory result(desc, engine_);
    if (desc.get_size() > 0) std::memset(result.get_data_handle(), 0, desc.get_size());
    return result;
  }

  template <typename Primitive, typename PrimitiveDesc>
  void Add(const PrimitiveDesc& pd, std::unordered_map<int, memory> arguments) {
    calls_.emplace_back(Primitive(pd), std::move(arguments));
  }

  void AddNode(const Graph& graph, const Node& node) {
    const Shape& input = graph.nodes()[node.inputs[0]].output;
    switch (node.kind) {
      case LayerKind::kConv2D:
      case LayerKind::kDepthwiseConv2D:
      case LayerKind::kDense:
        return AddConvolution(node, input, node.inputs[0] != 0, graph.variables()[node.variables[0]].shape);
      case LayerKind::kBatchNormalization: return AddNormalization(input);
      case LayerKind::kMaxPooling2D:
      case LayerKind::kAveragePooling2D: return AddPooling(node, input);
      case LayerKind::kAdd: return AddSum(input);
      case LayerKind::kActivation:
        // The normalization applies a plain relu itself.
        if (graph.nodes()[node.inputs[0]].kind != LayerKind::kBatchNormalization || node.activation != v1::RELU) {
          AddRelu(input);
        }
        return;
      default: return;
    }
  }

  void AddConvolution(const Node& node, const Shape& input, bool inner, const Shape& kernel) {
    const Window& w = node.window;
    const bool depthwise = node.kind == LayerKind::kDepthwiseConv2D;
    const int64_t in = kernel[kernel.size() - 2], out = kernel.back();
    const memory::dims weights = depthwise ? memory::dims{in, out, 1, w.kernel[0], w.kernel[1]}
                                           : memory::dims{out, in, w.kernel[0], w.kernel[1]};
    const memory::dims strides{w.strides[0], w.strides[1]}, begin{w.pad_begin[0], w.pad_begin[1]};
    const memory::dims dst = DimsOf(node.output);
    // A padding layer is counted here as the padding of the layer behind it.
    memory::dims end(2);
    for (int i = 0; i < 2; ++i) {
      const int64_t size = input.size() == 1 ? 1 : input[i];
      end[i] = (dst[2 + i] - 1) * strides[i] + w.kernel[i] - size - begin[i];
    }
    const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_training, algorithm::convolution_direct,
                                               Any(DimsOf(input)), Any(weights), Any(dst), strides, begin, end);
    const dnnl::convolution_forward::primitive_desc forward(desc, engine_);
    Add<dnnl::convolution_forward>(forward, {{DNNL_ARG_SRC, New(forward.src_desc())},
                                             {DNNL_ARG_WEIGHTS, New(forward.weights_desc())},
                                             {DNNL_ARG_DST, New(forward.dst_desc())}});
    const dnnl::convolution_backward_weights::desc weights_desc(algorithm::convolution_direct, Any(DimsOf(input)),
                                                                Any(weights), Any(dst), strides, begin, end);
    const dnnl::convolution_backward_weights::primitive_desc of_weights(weights_desc, engine_, forward);
    Add<dnnl::convolution_backward_weights>(of_weights, {{DNNL_ARG_SRC, New(of_weights.src_desc())},
                                                         {DNNL_ARG_DIFF_DST, New(of_weights.diff_dst_desc())},
                                                         {DNNL_ARG_DIFF_WEIGHTS, New(of_weights.diff_weights_desc())}});
    if (!inner) return;
    const dnnl::convolution_backward_data::desc data_desc(algorithm::convolution_direct, Any(DimsOf(input)),
                                                          Any(weights), Any(dst), strides, begin, end);
    const dnnl::convolution_backward_data::primitive_desc of_data(data_desc, engine_, forward);
    Add<dnnl::convolution_backward_data>(of_data, {{DNNL_ARG_DIFF_DST, New(of_data.diff_dst_desc())},
                                                   {DNNL_ARG_WEIGHTS, New(of_data.weights_desc())},
                                                   {DNNL_ARG_DIFF_SRC, New(of_data.diff_src_desc())}});
  }

  void AddNormalization(const Shape& shape) {
    using dnnl::normalization_flags;
    const auto flags =
        normalization_flags::use_scale | normalization_flags::use_shift | normalization_flags::fuse_norm_relu;
    const Desc image = ImageOf(shape), channels = Any({shape.back()}, Tag::x);
    const dnnl::batch_normalization_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, image, 1e-3f, flags}, engine_);
    const dnnl::batch_normalization_backward::primitive_desc backward(
        {dnnl::prop_kind::backward, image, image, 1e-3f, flags}, engine_, forward);
    const memory src = New(image), mean = New(channels), variance = New(channels), scale = New(channels),
                 shift = New(channels);
    const memory workspace = New(forward.workspace_desc());
    Add<dnnl::batch_normalization_forward>(forward, {{DNNL_ARG_SRC, src},
                                                     {DNNL_ARG_DST, New(image)},
                                                     {DNNL_ARG_MEAN, mean},
                                                     {DNNL_ARG_VARIANCE, variance},
                                                     {DNNL_ARG_SCALE, scale},
                                                     {DNNL_ARG_SHIFT, shift},
                                                     {DNNL_ARG_WORKSPACE, workspace}});
    Add<dnnl::batch_normalization_backward>(backward, {{DNNL_ARG_SRC, src},
                                                       {DNNL_ARG_MEAN, mean},
                                                       {DNNL_ARG_VARIANCE, variance},
                                                       {DNNL_ARG_SCALE, scale},
                                                       {DNNL_ARG_SHIFT, shift},
                                                       {DNNL_ARG_DIFF_DST, New(image)},
                                                       {DNNL_ARG_DIFF_SRC, New(image)},
                                                       {DNNL_ARG_DIFF_SCALE, New(channels)},
                                                       {DNNL_ARG_DIFF_SHIFT, New(channels)},
                                                       {DNNL_ARG_WORKSPACE, workspace}});
  }

  void AddPooling(const Node& node, const Shape& input) {
    const Window& w = node.window;
    const auto kind =
        node.kind == LayerKind::kMaxPooling2D ? algorithm::pooling_max : algorithm::pooling_avg_exclude_padding;
    const memory::dims strides{w.strides[0], w.strides[1]}, kernel{w.kernel[0], w.kernel[1]},
        begin{w.pad_begin[0], w.pad_begin[1]}, end{w.pad_end[0], w.pad_end[1]};
    const Desc src = ImageOf(input), dst = ImageOf(node.output);
    const dnnl::pooling_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, kind, src, dst, strides, kernel, begin, end}, engine_);
    const dnnl::pooling_backward::primitive_desc backward({kind, src, dst, strides, kernel, begin, end}, engine_,
                                                          forward);
    const memory workspace = New(forward.workspace_desc());
    Add<dnnl::pooling_forward>(forward,
                               {{DNNL_ARG_SRC, New(src)}, {DNNL_ARG_DST, New(dst)}, {DNNL_ARG_WORKSPACE, workspace}});
    Add<dnnl::pooling_backward>(
        backward, {{DNNL_ARG_DIFF_DST, New(dst)}, {DNNL_ARG_DIFF_SRC, New(src)}, {DNNL_ARG_WORKSPACE, workspace}});
  }

  void AddSum(const Shape& shape) {
    const Desc image = ImageOf(shape);
    const dnnl::binary::primitive_desc pd({algorithm::binary_add, image, image, image}, engine_);
    Add<dnnl::binary>(pd, {{DNNL_ARG_SRC_0, New(image)}, {DNNL_ARG_SRC_1, New(image)}, {DNNL_ARG_DST, New(image)}});
  }

  void AddRelu(const Shape& shape) {
    const Desc image = ImageOf(shape);
    const dnnl::eltwise_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm::eltwise_relu, image, 0, 0}, engine_);
    const dnnl::eltwise_backward::primitive_desc backward({algorithm::eltwise_relu, image, image, 0, 0}, engine_,
                                                          forward);
    const memory src = New(image), gradient = New(image);
    Add<dnnl::eltwise_forward>(forward, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, src}});
    Add<dnnl::eltwise_backward>(backward,
                                {{DNNL_ARG_SRC, src}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, gradient}});
  }

  const int64_t examples_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<std::pair<dnnl::primitive, std::unordered_map<int, memory>>> calls_;
};

double CpuSeconds(const std::function<void()>& run) {
  const std::clock_t start = std::clock();
  run();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

template <typename T>
T Need(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

// frozen: by the backend, only the last layer is trained.
void Compare(const v1::ReadyMade& wanted, int64_t batch, int rounds, bool frozen) {
  v1::Model model = Need(MakeReadyMade(wanted));
  for (int i = 0; i + 1 < model.layers_size() && frozen; ++i) model.mutable_layers(i)->set_trainable(false);
  const auto graph = std::make_shared<const Graph>(Need(Graph::Build(model)));
  ProgramOptions options;
  options.batch_max = batch;
  options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  const std::unique_ptr<Program> program = Need(MakeOnednnBackend()->Compile(graph, options));
  std::vector<float> values(graph->space_size()), gradients(graph->space_size());
  InitializeRange(*graph, 1, 0, absl::MakeSpan(values));
  Batch one;
  one.examples = batch;
  one.inputs = Buffer::Allocate(batch * NumElements(graph->input_shape()) * sizeof(float));
  one.labels = Buffer::Allocate(batch * sizeof(float));
  uint32_t x = 1;
  for (float& v : one.inputs.mutable_floats()) v = static_cast<float>((x = x * 1664525 + 1013904223) >> 24) / 256;
  for (float& v : one.labels.mutable_floats()) v = 0;
  BareLoop bare(*graph, batch);
  bare.Run();
  const auto step = [&] { Need(program->TrainStep(one, {}, values, absl::MakeSpan(gradients), nullptr)); };
  step();
  std::vector<double> ours, theirs;
  for (int r = 0; r < rounds; ++r) {
    ours.push_back(CpuSeconds(step));
    theirs.push_back(CpuSeconds([&] { bare.Run(); }));
  }
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  const double mine = ours[rounds / 2], other = theirs[rounds / 2];
  std::printf(
      "%-13s batch %lld: %.0f ms a step, bare primitives %.0f ms, ratio %.3f; %.1f images/s; memory %.0f MB, "
      "variables %.0f MB\n",
      wanted.name().c_str(), static_cast<long long>(batch), 1e3 * mine, 1e3 * other, other / mine,
      static_cast<double>(batch) / mine, static_cast<double>(program->memory_bytes()) / 1e6,
      static_cast<double>(graph->space_size()) * 4e-6);
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  omp_set_num_threads(1);
  CLI::App app("Training steps of ready-made models by the oneDNN backend.");
  int64_t batch = 8;
  int32_t side = 112;
  int rounds = 5;
  bool frozen = false;
  std::vector<std::string> models = {"resnet50", "mobilenet_v2"};
  app.add_option("--batch", batch, "examples a step")->check(CLI::Range(1, 4096));
  app.add_option("--side", side, "height and width of the images")->check(CLI::Range(32, 1024));
  app.add_option("--rounds", rounds, "the median counts")->check(CLI::Range(1, 100));
  app.add_option("--model", models, "names of ready-made models");
  app.add_flag("--frozen", frozen, "the backend trains the last layer alone");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& name : models) {
    cairn::v1::ReadyMade wanted;
    wanted.set_name(name);
    for (int32_t dim : {side, side, 3}) wanted.add_input_shape(dim);
    cairn::bench::Compare(wanted, batch, rounds, frozen);
  }
}
