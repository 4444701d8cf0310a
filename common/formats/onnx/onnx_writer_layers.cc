// What each layer is in ONNX's operators (opset 13). Formulas are those of the Keras layers.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/formats/onnx/onnx_writer.h"

namespace cairn {
namespace {

constexpr float kMasked = -1e9f;  // e to the power of it is 0

bool IsPicture(const Node& node) { return node.output.size() == 3; }

}  // namespace

void OnnxWriter::WriteGraph() {
  for (const Node& node : graph_.nodes()) {
    layer_ = node.name;
    WriteLayer(node);
  }
  WriteModelOutput(graph_.output());
}

void OnnxWriter::WriteLayer(const Node& node) {
  switch (node.kind) {
    case LayerKind::kInput: return WriteInput(node);
    case LayerKind::kRescaling: return Rescale(node);
    case LayerKind::kConv1D:
    case LayerKind::kConv2D:
    case LayerKind::kDepthwiseConv2D: return Convolve(node);
    case LayerKind::kSeparableConv2D: return Separable(node);
    case LayerKind::kConv2DTranspose: return Transposed(node);
    case LayerKind::kBatchNormalization: return Normalize(node);
    case LayerKind::kLayerNormalization: return NormalizeLayer(node);
    case LayerKind::kGroupNormalization: return NormalizeGroups(node);
    case LayerKind::kMaxPooling1D:
    case LayerKind::kMaxPooling2D: return Pool(node, /*max=*/true);
    case LayerKind::kAveragePooling1D:
    case LayerKind::kAveragePooling2D: return Pool(node, /*max=*/false);
    case LayerKind::kGlobalAveragePooling1D:
    case LayerKind::kGlobalAveragePooling2D: return PoolAll(node);
    case LayerKind::kZeroPadding2D: return Pad(node);
    case LayerKind::kUpSampling2D: return UpSample(node);
    case LayerKind::kDense: return Dense(node);
    case LayerKind::kEmbedding: return Embed(node);
    case LayerKind::kActivation: return Finish(node, In(node, 0, Has(node, 0)), Has(node, 0));
    case LayerKind::kDropout:
    case LayerKind::kSpatialDropout2D: return SetOutput(node, In(node, 0, Has(node, 0)), Has(node, 0));
    case LayerKind::kFlatten:
    case LayerKind::kReshape:
      return SetOutput(node, Reshape(In(node, 0, Channels::kLast), node.output), Channels::kLast);
    case LayerKind::kPermute: {
      std::vector<int64_t> axes = {0};
      for (const int32_t dim : node.layer.permute().dims()) axes.push_back(dim);
      // onnxruntime takes a transposition that moves nothing before a Gemm for one that does.
      if (std::is_sorted(axes.begin(), axes.end()))
        return SetOutput(node, In(node, 0, Channels::kLast), Channels::kLast);
      return SetOutput(node, Transpose(In(node, 0, Channels::kLast), axes), Channels::kLast);
    }
    case LayerKind::kAdd: return Join(node, "Add", "Sum");
    case LayerKind::kAverage: return Join(node, "Mean", "Mean");
    case LayerKind::kMaximum: return Join(node, "Max", "Max");
    case LayerKind::kConcatenate: return Concatenate(node);
    case LayerKind::kMultiply: return Multiply(node);
    case LayerKind::kMultiHeadAttention: return Attend(node);
  }
}

void OnnxWriter::Finish(const Node& node, const std::string& value, Channels channels) {
  SetOutput(node, Activate(node, value, channels), channels);
}

std::string OnnxWriter::Activate(const Node& node, const std::string& value, Channels channels) {
  switch (node.activation) {
    case v1::RELU: return Op("Relu", {value});
    case v1::RELU6: return Op("Clip", {value, Scalar("zero", 0), Scalar("six", 6)});
    case v1::LEAKY_RELU: {
      const std::string y = Op("LeakyRelu", {value});
      Float("alpha", node.negative_slope);
      return y;
    }
    case v1::ELU: {
      const std::string y = Op("Elu", {value});
      Float("alpha", node.alpha);
      return y;
    }
    case v1::SIGMOID: return Op("Sigmoid", {value});
    case v1::TANH: return Op("Tanh", {value});
    case v1::SOFTPLUS: return Op("Softplus", {value});
    case v1::SILU: return Op("Mul", {value, Op("Sigmoid", {value})});
    case v1::SOFTMAX: {
      const std::string y = Op("Softmax", {value});
      Int("axis", channels == Channels::kFirst && node.output.size() > 1 ? 1 : -1);
      return y;
    }
    case v1::GELU: {
      const std::string erf = Op("Erf", {Op("Div", {value, Scalar("sqrt_2", static_cast<float>(std::sqrt(2.0)))})});
      return Op("Mul", {Op("Mul", {value, Op("Add", {erf, Scalar("one", 1)})}), Scalar("half", 0.5f)});
    }
    case v1::GELU_TANH: {
      const std::string cube = Op("Mul", {Op("Pow", {value, Scalar("three", 3)}), Scalar("gelu_cubic", 0.044715f)});
      const std::string inner =
          Op("Mul", {Op("Add", {value, cube}), Scalar("sqrt_2_pi", static_cast<float>(std::sqrt(2 / M_PI)))});
      return Op("Mul", {Op("Mul", {value, Op("Add", {Op("Tanh", {inner}), Scalar("one", 1)})}), Scalar("half", 0.5f)});
    }
    default: return value;
  }
}

void OnnxWriter::Rescale(const Node& node) {
  const v1::Rescaling& r = node.layer.rescaling();
  const Channels channels = Has(node, 0);
  std::string value = Op("Mul", {In(node, 0, channels), Scalar("scale", r.scale())});
  if (r.offset() != 0) value = Op("Add", {value, Scalar("offset", r.offset())});
  SetOutput(node, value, channels);
}

// ---- windows ----

void OnnxWriter::Window(const Node& node, bool dilations) {
  const cairn::Window& w = node.window;
  const auto pair = [&](const int64_t(&p)[2]) {
    return IsPicture(node) ? std::vector<int64_t>{p[0], p[1]} : std::vector<int64_t>{p[1]};
  };
  Ints("kernel_shape", pair(w.kernel));
  Ints("strides", pair(w.strides));
  if (dilations) Ints("dilations", pair(w.dilation));
  std::vector<int64_t> pads = pair(w.pad_begin);
  for (const int64_t pad : pair(w.pad_end)) pads.push_back(pad);
  Ints("pads", pads);
}

void OnnxWriter::Convolve(const Node& node) {
  const Shape& input = ShapeOf(node, 0);
  const int64_t *k = node.window.kernel, channels = node.output.back();
  Names inputs = {In(node, 0, Channels::kFirst)};
  int64_t groups = 1;
  if (node.kind == LayerKind::kDepthwiseConv2D) {
    groups = input.back();
    inputs.push_back(VariableOf(node, "kernel", {2, 3, 0, 1}, {channels, 1, k[0], k[1]}));
  } else if (node.kind == LayerKind::kConv2D) {
    inputs.push_back(VariableOf(node, "kernel", {3, 2, 0, 1}, {channels, input.back(), k[0], k[1]}));
  } else {
    inputs.push_back(VariableOf(node, "kernel", {2, 1, 0}, {channels, input.back(), k[1]}));
  }
  if (const std::string bias = VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  const std::string y = Op("Conv", inputs);
  Int("group", groups);
  Window(node, /*dilations=*/true);
  Finish(node, y, Channels::kFirst);
}

void OnnxWriter::Separable(const Node& node) {
  const int64_t *k = node.window.kernel, in = ShapeOf(node, 0).back();
  const int64_t between = in * node.layer.separable_conv2d().depth_multiplier();
  const std::string x = In(node, 0, Channels::kFirst);
  const std::string depthwise =
      Op("Conv", {x, VariableOf(node, "depthwise_kernel", {2, 3, 0, 1}, {between, 1, k[0], k[1]})});
  Int("group", in);
  Window(node, /*dilations=*/true);
  Names inputs = {depthwise, VariableOf(node, "pointwise_kernel", {3, 2, 0, 1}, {node.output[2], between, 1, 1})};
  if (const std::string bias = VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  Finish(node, Op("Conv", inputs), Channels::kFirst);
}

// The window is that of the convolution from the output to the input. Where the strides are larger than the kernel, the
// output goes on behind the last window.
void OnnxWriter::Transposed(const Node& node) {
  const cairn::Window& w = node.window;
  Names inputs = {
      In(node, 0, Channels::kFirst),
      VariableOf(node, "kernel", {3, 2, 0, 1}, {ShapeOf(node, 0).back(), node.output[2], w.kernel[0], w.kernel[1]})};
  if (const std::string bias = VariableOf(node, "bias"); !bias.empty()) inputs.push_back(bias);
  const std::string y = Op("ConvTranspose", inputs);
  Window(node, /*dilations=*/false);
  Ints("output_padding",
       {std::max<int64_t>(0, w.strides[0] - w.kernel[0]), std::max<int64_t>(0, w.strides[1] - w.kernel[1])});
  Finish(node, y, Channels::kFirst);
}

void OnnxWriter::Pool(const Node& node, bool max) {
  const std::string x = In(node, 0, Channels::kFirst);
  const std::string y = Op(max ? "MaxPool" : "AveragePool", {x});
  Window(node, /*dilations=*/false);
  if (!max) Int("count_include_pad", 0);
  SetOutput(node, y, Channels::kFirst);
}

void OnnxWriter::PoolAll(const Node& node) {
  const Channels channels = Has(node, 0);
  const std::string y = Op("ReduceMean", {In(node, 0, channels)});
  std::vector<int64_t> axes = {channels == Channels::kFirst ? 2 : 1};
  if (ShapeOf(node, 0).size() == 3) axes.push_back(axes[0] + 1);
  Ints("axes", axes);
  Int("keepdims", 0);
  SetOutput(node, y, Channels::kLast);
}

void OnnxWriter::Pad(const Node& node) {
  const Channels channels = Has(node, 0);
  const int64_t *begin = node.window.pad_begin, *end = node.window.pad_end;
  const std::vector<int64_t> pads = channels == Channels::kFirst
                                        ? std::vector<int64_t>{0, 0, begin[0], begin[1], 0, 0, end[0], end[1]}
                                        : std::vector<int64_t>{0, begin[0], begin[1], 0, 0, end[0], end[1], 0};
  const std::string x = In(node, 0, channels);
  SetOutput(node, Op("Pad", {x, Whole("pads", pads)}), channels);
}

void OnnxWriter::UpSample(const Node& node) {
  const v1::UpSampling2D& up = node.layer.up_sampling2d();
  const std::string x = In(node, 0, Channels::kFirst);
  const std::string scales =
      Numbers("scales", {4}, {1, 1, static_cast<float>(up.size(0)), static_cast<float>(up.size(1))});
  const std::string y = Op("Resize", {x, "", scales});
  if (up.interpolation() == v1::UpSampling2D::BILINEAR) {
    Text("mode", "linear");
    Text("coordinate_transformation_mode", "half_pixel");
  } else {
    Text("mode", "nearest");
    Text("coordinate_transformation_mode", "asymmetric");
    Text("nearest_mode", "floor");
  }
  SetOutput(node, y, Channels::kFirst);
}

// ---- features ----

void OnnxWriter::Dense(const Node& node) {
  const std::string x = In(node, 0, Channels::kLast);
  const std::string kernel = VariableOf(node, "kernel"), bias = VariableOf(node, "bias");
  std::string y;
  if (node.output.size() == 1) {
    y = Op("Gemm", bias.empty() ? Names{x, kernel} : Names{x, kernel, bias});
  } else {
    y = Op("MatMul", {x, kernel});
    if (!bias.empty()) y = Op("Add", {y, bias});
  }
  Finish(node, y, Channels::kLast);
}

void OnnxWriter::Embed(const Node& node) {
  const std::string ids = Op("Cast", {In(node, 0, Channels::kLast)});
  Int("to", onnx::TensorProto::INT64);
  const std::string y = Op("Gather", {VariableOf(node, "embeddings"), ids});
  Int("axis", 0);
  SetOutput(node, y, Channels::kLast);
}

void OnnxWriter::Normalize(const Node& node) {
  const v1::BatchNormalization& bn = node.layer.batch_normalization();
  const int64_t channels = node.output.back();
  const std::string x = In(node, 0, Channels::kFirst);
  std::string gamma = VariableOf(node, "gamma"), beta = VariableOf(node, "beta");
  if (gamma.empty()) gamma = Numbers("ones", {channels}, std::vector<float>(static_cast<size_t>(channels), 1.0f));
  if (beta.empty()) beta = Numbers("zeros", {channels}, std::vector<float>(static_cast<size_t>(channels), 0.0f));
  const std::string mean = VariableOf(node, "moving_mean"), variance = VariableOf(node, "moving_variance");
  const std::string y = Op("BatchNormalization", {x, gamma, beta, mean, variance});
  Float("epsilon", bn.epsilon());
  Float("momentum", bn.momentum());
  SetOutput(node, y, Channels::kFirst);
}

std::string OnnxWriter::ScaleAndCenter(const Node& node, std::string value, const Shape& dims) {
  if (const std::string gamma = VariableOf(node, "gamma", {0}, dims); !gamma.empty()) value = Op("Mul", {value, gamma});
  if (const std::string beta = VariableOf(node, "beta", {0}, dims); !beta.empty()) value = Op("Add", {value, beta});
  return value;
}

void OnnxWriter::NormalizeLayer(const Node& node) {
  const auto mean_of = [&](const std::string& value) {
    const std::string mean = Op("ReduceMean", {value});
    Ints("axes", {-1});
    Int("keepdims", 1);
    return mean;
  };
  const std::string x = In(node, 0, Channels::kLast);
  const std::string centered = Op("Sub", {x, mean_of(x)});
  const std::string variance = mean_of(Op("Pow", {centered, Scalar("two", 2)}));
  const std::string epsilon = Scalar("epsilon", node.layer.layer_normalization().epsilon());
  const std::string y = Op("Div", {centered, Op("Sqrt", {Op("Add", {variance, epsilon})})});
  SetOutput(node, ScaleAndCenter(node, y, {node.output.back()}), Channels::kLast);
}

// A group, normalized over its channels and all positions, is one channel of an InstanceNormalization.
void OnnxWriter::NormalizeGroups(const Node& node) {
  const v1::GroupNormalization& norm = node.layer.group_normalization();
  const size_t groups = static_cast<size_t>(norm.groups());
  const std::string x = Reshape(In(node, 0, Channels::kFirst), {norm.groups(), -1});
  const std::string ones = Numbers("ones", {norm.groups()}, std::vector<float>(groups, 1.0f));
  const std::string zeros = Numbers("zeros", {norm.groups()}, std::vector<float>(groups, 0.0f));
  const std::string normalized = Op("InstanceNormalization", {x, ones, zeros});
  Float("epsilon", norm.epsilon());
  Shape first = node.output, dims(node.output.size(), 1);
  std::rotate(first.begin(), first.end() - 1, first.end());
  dims[0] = node.output.back();
  SetOutput(node, ScaleAndCenter(node, Reshape(normalized, first), dims), Channels::kFirst);
}

// ---- layers with several inputs ----

void OnnxWriter::Join(const Node& node, const char* two, const char* more) {
  Channels channels = Channels::kLast;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (Has(node, i) == Channels::kFirst) channels = Channels::kFirst;
  }
  Names inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(In(node, i, channels));
  SetOutput(node, Op(inputs.size() == 2 ? two : more, inputs), channels);
}

void OnnxWriter::Concatenate(const Node& node) {
  Join(node, "Concat", "Concat");
  const bool first = outputs_[node.id].last.empty();
  Int("axis", first ? 1 : -1);
}

// Shapes of fewer axes are stretched from the last one, behind the batch.
void OnnxWriter::Multiply(const Node& node) {
  const size_t rank = node.output.size();
  Channels channels = Channels::kLast;
  bool same_rank = true;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    same_rank = same_rank && ShapeOf(node, i).size() == rank;
    if (Has(node, i) == Channels::kFirst) channels = Channels::kFirst;
  }
  if (!same_rank) channels = Channels::kLast;
  std::string product;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    std::string factor = In(node, i, channels);
    std::vector<int64_t> axes;
    for (size_t axis = ShapeOf(node, i).size(); axis < rank; ++axis)
      axes.push_back(static_cast<int64_t>(axes.size()) + 1);
    if (!axes.empty()) factor = Op("Unsqueeze", {factor, Whole("axes", axes)});
    product = product.empty() ? factor : Op("Mul", {product, factor});
  }
  SetOutput(node, product, channels);
}

// [steps, in] to [steps, heads * size].
std::string OnnxWriter::Project(const Node& node, const char* which, const std::string& value, int64_t in,
                                int64_t heads, int64_t size) {
  const std::string kernel = VariableOf(node, absl::StrCat(which, "/kernel"), {0, 1, 2}, {in, heads * size});
  const std::string bias = VariableOf(node, absl::StrCat(which, "/bias"), {0, 1}, {heads * size});
  const std::string y = Op("MatMul", {value, kernel});
  return bias.empty() ? y : Op("Add", {y, bias});
}

// Attention(Q, K, V) = softmax(Q K^T / sqrt(key_dim)) V by head (Vaswani et al. 2017, equation 1).
void OnnxWriter::Attend(const Node& node) {
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  const size_t key_input = node.inputs.size() > 2 ? 2 : 1;
  const int64_t heads = mha.num_heads(), key_dim = mha.key_dim(), value_dim = mha.value_dim();
  const int64_t steps = ShapeOf(node, 0)[0], keys = ShapeOf(node, 1)[0], features = ShapeOf(node, 0)[1];
  const auto by_head = [&](const char* which, size_t input, int64_t rows, int64_t size,
                           const std::vector<int64_t>& axes) {
    const std::string y = Project(node, which, In(node, input, Channels::kLast), ShapeOf(node, input)[1], heads, size);
    return Transpose(Reshape(y, {rows, heads, size}), axes);
  };
  const std::string query = by_head("query", 0, steps, key_dim, {0, 2, 1, 3});
  const std::string key = by_head("key", key_input, keys, key_dim, {0, 2, 3, 1});
  const std::string value = by_head("value", 1, keys, value_dim, {0, 2, 1, 3});
  std::string scores =
      Op("MatMul",
         {Op("Mul", {query, Scalar("scale", static_cast<float>(1 / std::sqrt(static_cast<double>(key_dim))))}), key});
  if (mha.use_causal_mask()) {
    std::vector<float> mask(static_cast<size_t>(steps * keys), 0.0f);
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t s = t + 1; s < keys; ++s) mask[static_cast<size_t>(t * keys + s)] = kMasked;
    }
    scores = Op("Add", {scores, Numbers("mask", {steps, keys}, mask)});
  }
  const std::string weights = Op("Softmax", {scores});
  Int("axis", -1);
  const std::string joined =
      Reshape(Transpose(Op("MatMul", {weights, value}), {0, 2, 1, 3}), {steps, heads * value_dim});
  std::string y =
      Op("MatMul", {joined, VariableOf(node, "attention_output/kernel", {0, 1, 2}, {heads * value_dim, features})});
  if (const std::string bias = VariableOf(node, "attention_output/bias"); !bias.empty()) y = Op("Add", {y, bias});
  SetOutput(node, y, Channels::kLast);
}

}  // namespace cairn
