#include "common/formats/keras_class.h"

#include <initializer_list>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/decimal.h"
#include "common/formats/keras_config.h"
#include "common/model/call_mode.h"

namespace cairn {
namespace {

// Of a field; an Activation layer with an argument is a class of its own.
absl::StatusOr<std::string> ActivationText(const Node& node, v1::Activation activation) {
  if (const char* name = KerasActivationName(activation)) return name;
  return absl::UnimplementedError(absl::StrCat("layer \"", node.name, "\": Keras' format has no name for activation ",
                                               v1::Activation_Name(activation), "; use GELU, or export safetensors"));
}

OrderedJson InitializerJson(const v1::Initializer& initializer) {
  OrderedJson config = OrderedJson::object();
  switch (initializer.kind()) {
    case v1::Initializer::ZEROS:
    case v1::Initializer::ONES: break;
    case v1::Initializer::CONSTANT: config["value"] = Decimal(initializer.value()); break;
    case v1::Initializer::RANDOM_UNIFORM:
      config["seed"] = nullptr;
      config["minval"] = Decimal(initializer.minval());
      config["maxval"] = Decimal(initializer.maxval());
      break;
    case v1::Initializer::RANDOM_NORMAL:
    case v1::Initializer::TRUNCATED_NORMAL:
      config["seed"] = nullptr;
      config["mean"] = Decimal(initializer.mean());
      config["stddev"] = Decimal(initializer.stddev());
      break;
    case v1::Initializer::VARIANCE_SCALING: {
      const auto lower = [](const std::string& name) { return absl::AsciiStrToLower(name); };
      config["seed"] = nullptr;
      config["scale"] = Decimal(initializer.scale());
      config["mode"] = lower(v1::Initializer::FanMode_Name(initializer.mode()));
      const std::string name = v1::Initializer::Distribution_Name(initializer.distribution());
      config["distribution"] = lower(std::string(absl::StripPrefix(name, "DISTRIBUTION_")));
      break;
    }
    default: config["seed"] = nullptr; break;
  }
  return KerasObject("keras.initializers", KerasInitializerClass(initializer.kind()), std::move(config));
}

OrderedJson InitializerJson(v1::Initializer::Kind kind) {
  v1::Initializer initializer;
  initializer.set_kind(kind);
  return InitializerJson(initializer);
}

// A config in the making. Keys stand in the order in which Keras writes them.
class Config {
 public:
  explicit Config(const Node& node) : node_(node) {
    json_["name"] = node.name;
    json_["trainable"] = node.trainable;
    json_["dtype"] = "float32";
  }

  OrderedJson& operator[](const char* key) { return json_[key]; }
  void Without(const char* key) { json_.erase(key); }

  void Ints(const char* key, absl::Span<const int32_t> numbers) {
    json_[key] = OrderedJson::array();
    for (const int32_t number : numbers) json_[key].push_back(number);
  }
  void Ints(const char* key, int32_t number) { Ints(key, absl::MakeConstSpan(&number, 1)); }
  void Padding(v1::Padding padding) { json_["padding"] = padding == v1::SAME ? "same" : "valid"; }
  template <typename Layer>
  void Window(const Layer& layer) {
    Ints("kernel_size", layer.kernel_size());
    Ints("strides", layer.strides());
    Padding(layer.padding());
  }
  void ChannelsLast() { json_["data_format"] = "channels_last"; }
  void Nulls(std::initializer_list<const char*> keys) {
    for (const char* key : keys) json_[key] = nullptr;
  }
  void Regularizer(const char* key, bool given, const v1::Regularizer& regularizer) {
    json_[key] = nullptr;
    if (!given) return;
    OrderedJson config = OrderedJson::object();
    const bool both = regularizer.l1() != 0 && regularizer.l2() != 0;
    if (regularizer.l1() != 0) config["l1"] = Decimal(regularizer.l1());
    if (regularizer.l2() != 0) config["l2"] = Decimal(regularizer.l2());
    json_[key] = KerasObject("keras.regularizers",
                             both                    ? "L1L2"
                             : regularizer.l1() != 0 ? "L1"
                                                     : "L2",
                             std::move(config));
  }
  // Of what the bias is and the outputs are, behind the kernel's.
  template <typename Layer>
  void BiasRegularizer(const Layer& layer) {
    Regularizer("bias_regularizer", layer.has_bias_regularizer(), layer.bias_regularizer());
    json_["activity_regularizer"] = nullptr;
  }
  template <typename Layer>
  void ActivationAndBias(const Layer& layer) {
    absl::StatusOr<std::string> text = ActivationText(node_, layer.activation());
    status_.Update(text.status());
    json_["activation"] = text.ok() ? *text : "";
    json_["use_bias"] = layer.use_bias();
  }
  template <typename Layer>
  void KernelAndBias(const Layer& layer) {
    json_["kernel_initializer"] = InitializerJson(layer.kernel_initializer());
    json_["bias_initializer"] = InitializerJson(layer.bias_initializer());
    Regularizer("kernel_regularizer", layer.has_kernel_regularizer(), layer.kernel_regularizer());
    BiasRegularizer(layer);
    Nulls({"kernel_constraint", "bias_constraint"});
  }
  template <typename Layer>
  void ScaleAndCenter(const Layer& layer) {
    json_["epsilon"] = Decimal(layer.epsilon());
    json_["center"] = layer.center();
    json_["scale"] = layer.scale();
    json_["beta_initializer"] = InitializerJson(v1::Initializer::ZEROS);
    json_["gamma_initializer"] = InitializerJson(v1::Initializer::ONES);
    Regularizer("beta_regularizer", layer.has_beta_regularizer(), layer.beta_regularizer());
    Regularizer("gamma_regularizer", layer.has_gamma_regularizer(), layer.gamma_regularizer());
    Nulls({"beta_constraint", "gamma_constraint"});
  }

  absl::StatusOr<OrderedJson> Take() {
    if (!status_.ok()) return status_;
    return std::move(json_);
  }

 private:
  const Node& node_;
  OrderedJson json_ = OrderedJson::object();
  absl::Status status_;
};

template <typename Convolution>
void AddConvolution(const Convolution& conv, Config* c) {
  (*c)["filters"] = conv.filters();
  c->Window(conv);
  c->ChannelsLast();
  c->Ints("dilation_rate", conv.dilation_rate());
  (*c)["groups"] = 1;
  c->ActivationAndBias(conv);
  c->KernelAndBias(conv);
}

void AddDepthwiseConv2D(const v1::DepthwiseConv2D& conv, Config* c) {
  c->Window(conv);
  (*c)["depth_multiplier"] = conv.depth_multiplier();
  c->ChannelsLast();
  c->Ints("dilation_rate", conv.dilation_rate());
  c->ActivationAndBias(conv);
  (*c)["depthwise_initializer"] = InitializerJson(conv.depthwise_initializer());
  (*c)["bias_initializer"] = InitializerJson(conv.bias_initializer());
  c->Regularizer("depthwise_regularizer", conv.has_depthwise_regularizer(), conv.depthwise_regularizer());
  c->BiasRegularizer(conv);
  c->Nulls({"depthwise_constraint", "bias_constraint"});
}

void AddSeparableConv2D(const v1::SeparableConv2D& conv, Config* c) {
  (*c)["filters"] = conv.filters();
  c->Window(conv);
  c->ChannelsLast();
  c->Ints("dilation_rate", conv.dilation_rate());
  (*c)["depth_multiplier"] = conv.depth_multiplier();
  c->ActivationAndBias(conv);
  (*c)["depthwise_initializer"] = InitializerJson(conv.depthwise_initializer());
  (*c)["pointwise_initializer"] = InitializerJson(conv.pointwise_initializer());
  (*c)["bias_initializer"] = InitializerJson(conv.bias_initializer());
  c->Regularizer("depthwise_regularizer", conv.has_depthwise_regularizer(), conv.depthwise_regularizer());
  c->Regularizer("pointwise_regularizer", conv.has_pointwise_regularizer(), conv.pointwise_regularizer());
  c->BiasRegularizer(conv);
  c->Nulls({"depthwise_constraint", "pointwise_constraint", "bias_constraint"});
}

void AddConv2DTranspose(const v1::Conv2DTranspose& conv, Config* c) {
  (*c)["filters"] = conv.filters();
  c->Window(conv);
  (*c)["output_padding"] = nullptr;
  c->ChannelsLast();
  c->Ints("dilation_rate", {1, 1});
  c->ActivationAndBias(conv);
  c->KernelAndBias(conv);
}

template <typename Pooling>
void AddPooling(const Pooling& pooling, Config* c) {
  c->Ints("pool_size", pooling.pool_size());
  c->Padding(pooling.padding());
  c->Ints("strides", pooling.strides());
  c->ChannelsLast();
}

void AddAttention(const v1::MultiHeadAttention& attention, Config* c) {
  (*c)["num_heads"] = attention.num_heads();
  (*c)["key_dim"] = attention.key_dim();
  (*c)["value_dim"] = attention.value_dim();
  (*c)["dropout"] = Decimal(attention.dropout());
  (*c)["use_bias"] = attention.use_bias();
  c->Nulls({"output_shape", "attention_axes"});
  c->KernelAndBias(attention);
}

void AddActivation(const Node& node, Config* c) {
  switch (node.activation) {
    case v1::LEAKY_RELU: (*c)["negative_slope"] = Decimal(node.negative_slope); break;
    case v1::ELU:
      (*c)["alpha"] = Decimal(node.layer.activation().has_alpha() ? node.layer.activation().alpha() : 1.0f);
      break;
    case v1::RELU6:
      (*c)["max_value"] = 6.0;
      (*c)["negative_slope"] = 0.0;
      (*c)["threshold"] = 0.0;
      break;
    default: break;
  }
}

// Keras 3 up to 3.9 does not hold a Dropout to training=False; with this it does nothing either.
double DropoutRate(const Node& node, float rate) { return InfersAlways(node) ? 0.0 : Decimal(rate); }

}  // namespace

OrderedJson KerasObject(const char* module, const std::string& class_name, OrderedJson config) {
  OrderedJson object = OrderedJson::object();
  object["module"] = module;
  object["class_name"] = class_name;
  object["config"] = std::move(config);
  object["registered_name"] = nullptr;
  return object;
}

std::string KerasClass(const Node& node) {
  switch (node.kind) {
    case LayerKind::kInput: return "InputLayer";
    case LayerKind::kRescaling: return "Rescaling";
    case LayerKind::kConv2D: return "Conv2D";
    case LayerKind::kDepthwiseConv2D: return "DepthwiseConv2D";
    case LayerKind::kBatchNormalization: return "BatchNormalization";
    case LayerKind::kActivation:
      switch (node.activation) {
        case v1::LEAKY_RELU: return "LeakyReLU";
        case v1::ELU: return "ELU";
        case v1::RELU6: return "ReLU";
        default: return "Activation";
      }
    case LayerKind::kMaxPooling2D: return "MaxPooling2D";
    case LayerKind::kAveragePooling2D: return "AveragePooling2D";
    case LayerKind::kGlobalAveragePooling2D: return "GlobalAveragePooling2D";
    case LayerKind::kAdd: return "Add";
    case LayerKind::kConcatenate: return "Concatenate";
    case LayerKind::kFlatten: return "Flatten";
    case LayerKind::kDense: return "Dense";
    case LayerKind::kDropout: return "Dropout";
    case LayerKind::kZeroPadding2D: return "ZeroPadding2D";
    case LayerKind::kLayerNormalization: return "LayerNormalization";
    case LayerKind::kGroupNormalization: return "GroupNormalization";
    case LayerKind::kEmbedding: return "Embedding";
    case LayerKind::kGlobalAveragePooling1D: return "GlobalAveragePooling1D";
    case LayerKind::kMaxPooling1D: return "MaxPooling1D";
    case LayerKind::kAveragePooling1D: return "AveragePooling1D";
    case LayerKind::kConv1D: return "Conv1D";
    case LayerKind::kSeparableConv2D: return "SeparableConv2D";
    case LayerKind::kConv2DTranspose: return "Conv2DTranspose";
    case LayerKind::kUpSampling2D: return "UpSampling2D";
    case LayerKind::kSpatialDropout2D: return "SpatialDropout2D";
    case LayerKind::kReshape: return "Reshape";
    case LayerKind::kPermute: return "Permute";
    case LayerKind::kMultiply: return "Multiply";
    case LayerKind::kAverage: return "Average";
    case LayerKind::kMaximum: return "Maximum";
    case LayerKind::kMultiHeadAttention: return "MultiHeadAttention";
  }
  return "";
}

absl::StatusOr<OrderedJson> KerasLayerConfig(const Node& node) {
  Config c(node);
  const v1::Layer& layer = node.layer;
  switch (node.kind) {
    case LayerKind::kInput: {
      OrderedJson input = OrderedJson::object();
      input["batch_shape"] = OrderedJson::array({nullptr});
      for (const int64_t dim : node.output) input["batch_shape"].push_back(dim);
      input["dtype"] = "float32";
      input["sparse"] = false;
      input["name"] = node.name;
      return input;
    }
    case LayerKind::kRescaling:
      c["scale"] = Decimal(layer.rescaling().scale());
      c["offset"] = Decimal(layer.rescaling().offset());
      break;
    case LayerKind::kConv2D: AddConvolution(layer.conv2d(), &c); break;
    case LayerKind::kDepthwiseConv2D: AddDepthwiseConv2D(layer.depthwise_conv2d(), &c); break;
    case LayerKind::kBatchNormalization: {
      c["axis"] = -1;
      c["momentum"] = Decimal(layer.batch_normalization().momentum());
      c.ScaleAndCenter(layer.batch_normalization());
      c["moving_mean_initializer"] = InitializerJson(v1::Initializer::ZEROS);
      c["moving_variance_initializer"] = InitializerJson(v1::Initializer::ONES);
      c["synchronized"] = false;
      break;
    }
    case LayerKind::kLayerNormalization:
      c["axis"] = -1;
      c.ScaleAndCenter(layer.layer_normalization());
      break;
    case LayerKind::kGroupNormalization:
      c["groups"] = layer.group_normalization().groups();
      c["axis"] = -1;
      c.ScaleAndCenter(layer.group_normalization());
      break;
    case LayerKind::kActivation:
      if (KerasClass(node) == "Activation") {
        CAIRN_ASSIGN_OR_RETURN(c["activation"], ActivationText(node, node.activation));
      } else {
        AddActivation(node, &c);
      }
      break;
    case LayerKind::kMaxPooling2D: AddPooling(layer.max_pooling2d(), &c); break;
    case LayerKind::kAveragePooling2D: AddPooling(layer.average_pooling2d(), &c); break;
    case LayerKind::kMaxPooling1D: AddPooling(layer.max_pooling1d(), &c); break;
    case LayerKind::kAveragePooling1D: AddPooling(layer.average_pooling1d(), &c); break;
    case LayerKind::kGlobalAveragePooling1D:
    case LayerKind::kGlobalAveragePooling2D:
      c.ChannelsLast();
      c["keepdims"] = false;
      break;
    case LayerKind::kConcatenate: c["axis"] = -1; break;
    case LayerKind::kFlatten: c.ChannelsLast(); break;
    case LayerKind::kDense:
      c["units"] = layer.dense().units();
      c.ActivationAndBias(layer.dense());
      c.KernelAndBias(layer.dense());
      break;
    case LayerKind::kDropout:
      c["rate"] = DropoutRate(node, layer.dropout().rate());
      c.Nulls({"seed", "noise_shape"});
      break;
    case LayerKind::kSpatialDropout2D:
      c.Without("trainable");  // its constructor does not take it
      c["rate"] = DropoutRate(node, layer.spatial_dropout2d().rate());
      c["seed"] = nullptr;
      c.ChannelsLast();
      break;
    case LayerKind::kZeroPadding2D: {
      const auto& p = layer.zero_padding2d().padding();  // top, bottom, left, right
      c["padding"] = {{p[0], p[1]}, {p[2], p[3]}};
      c.ChannelsLast();
      break;
    }
    case LayerKind::kEmbedding: {
      c["input_dim"] = layer.embedding().input_dim();
      c["output_dim"] = layer.embedding().output_dim();
      c["embeddings_initializer"] = InitializerJson(layer.embedding().embeddings_initializer());
      c.Regularizer("embeddings_regularizer", layer.embedding().has_embeddings_regularizer(),
                    layer.embedding().embeddings_regularizer());
      c.Nulls({"activity_regularizer", "embeddings_constraint"});
      c["mask_zero"] = false;
      break;
    }
    case LayerKind::kConv1D: AddConvolution(layer.conv1d(), &c); break;
    case LayerKind::kSeparableConv2D: AddSeparableConv2D(layer.separable_conv2d(), &c); break;
    case LayerKind::kConv2DTranspose: AddConv2DTranspose(layer.conv2d_transpose(), &c); break;
    case LayerKind::kUpSampling2D:
      c.Ints("size", layer.up_sampling2d().size());
      c.ChannelsLast();
      c["interpolation"] = layer.up_sampling2d().interpolation() == v1::UpSampling2D::BILINEAR ? "bilinear" : "nearest";
      break;
    case LayerKind::kReshape: c.Ints("target_shape", layer.reshape().target_shape()); break;
    case LayerKind::kPermute: c.Ints("dims", layer.permute().dims()); break;
    case LayerKind::kMultiHeadAttention: AddAttention(layer.multi_head_attention(), &c); break;
    case LayerKind::kAdd:
    case LayerKind::kMultiply:
    case LayerKind::kAverage:
    case LayerKind::kMaximum: break;
  }
  return c.Take();
}

}  // namespace cairn
