// UpSampling1D, UpSampling2D and UpSampling3D.
#include <cmath>

#include "absl/strings/escaping.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/window_axes.h"
#include "common/model/onnx/axis_order.h"

namespace cairn::layers {
namespace {

absl::Status InferUpSampling2D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  const Shape& input = inputs[0];
  v1::UpSampling2D* layer = node->layer.mutable_up_sampling2d();
  CAIRN_RETURN_IF_ERROR(NeedImage(input));
  int64_t size[2];
  CAIRN_RETURN_IF_ERROR(ReadPair("size", 2, layer->mutable_size(), size));
  if (!v1::UpSampling2D::Interpolation_IsValid(layer->interpolation())) {
    return Bad("interpolation ", static_cast<int>(layer->interpolation()), " is not known; use NEAREST or BILINEAR");
  }
  if (layer->interpolation() == v1::UpSampling2D::INTERPOLATION_UNSPECIFIED)
    layer->set_interpolation(v1::UpSampling2D::NEAREST);
  for (int i = 0; i < 2; ++i) node->output[i] = input[i] * size[i];
  return absl::OkStatus();
}

void ReadUpSampling2D(KerasConfig& c, v1::Layer* out) {
  v1::UpSampling2D* layer = out->mutable_up_sampling2d();
  c.Ints("size", layer->mutable_size());
  keras::ChannelsLast(c);
  std::string interpolation = "nearest";
  c.Text("interpolation", &interpolation);
  if (interpolation == "bilinear") layer->set_interpolation(v1::UpSampling2D::BILINEAR);
  if (interpolation != "bilinear" && interpolation != "nearest") {
    c.Refuse(
        absl::StrCat("interpolation: \"", ShownText(interpolation), "\" is not supported; use nearest or bilinear"));
  }
}

void WriteUpSampling2D(const Node& node, KerasWriter& c) {
  const v1::UpSampling2D& layer = node.layer.up_sampling2d();
  c.Ints("size", layer.size());
  c.ChannelsLast();
  c["interpolation"] = layer.interpolation() == v1::UpSampling2D::BILINEAR ? "bilinear" : "nearest";
}

absl::Status InferUpSampling1D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::UpSampling1D* layer = node->layer.mutable_up_sampling1d();
  CAIRN_RETURN_IF_ERROR(NeedSequence(inputs[0]));
  CAIRN_ASSIGN_OR_RETURN(const int32_t size, ReadOne("size", 2, layer->has_size(), layer->size()));
  layer->set_size(size);
  node->output[0] = inputs[0][0] * size;
  return absl::OkStatus();
}

absl::Status InferUpSampling3D(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  CAIRN_RETURN_IF_ERROR(NeedAxes(inputs[0], 3));
  int64_t size[3];
  CAIRN_RETURN_IF_ERROR(ReadAxes("size", 3, 2, node->layer.mutable_up_sampling3d()->mutable_size(), size));
  for (size_t i = 0; i < 3; ++i) node->output[i] = inputs[0][i] * size[i];
  return absl::OkStatus();
}

void ReadUpSampling1D(KerasConfig& c, v1::Layer* out) { out->mutable_up_sampling1d()->set_size(OneInt(c, "size", 2)); }

void ReadUpSampling3D(KerasConfig& c, v1::Layer* out) {
  c.Ints("size", out->mutable_up_sampling3d()->mutable_size());
  keras::ChannelsLast(c);
}

void WriteUpSampling1D(const Node& node, KerasWriter& c) { c["size"] = node.layer.up_sampling1d().size(); }

void WriteUpSampling3D(const Node& node, KerasWriter& c) {
  c.Ints("size", node.layer.up_sampling3d().size());
  c.ChannelsLast();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::UpSampling2D& up = node.layer.up_sampling2d();  // other kinds: as NEAREST
  const Shape& input = w.ShapeOf(node, 0);
  const std::string x = w.In(node, 0, Channels::kFirst);
  std::vector<float> factors = {1, 1};
  for (size_t i = 0; i + 1 < input.size(); ++i) {
    const int64_t factor = node.output[i] / input[i];
    factors.push_back(static_cast<float>(factor));
  }
  const std::string scales = w.Numbers("scales", {static_cast<int64_t>(factors.size())}, factors);
  const std::string y = w.Op("Resize", {x, "", scales});
  if (up.interpolation() == v1::UpSampling2D::BILINEAR) {
    w.Text("mode", "linear");
    w.Text("coordinate_transformation_mode", "half_pixel");
  } else {
    w.Text("mode", "nearest");
    w.Text("coordinate_transformation_mode", "asymmetric");
    w.Text("nearest_mode", "floor");
  }
  w.SetOutput(node, y, Channels::kFirst);
}

// Returns the factor of each axis of x, the batch first: the attribute, the input of factors, or that of sizes.
absl::StatusOr<std::vector<double>> OnnxScales(OnnxImporter& importer, const OnnxView& x,
                                               const std::vector<float>& attribute, int input) {
  const size_t axes = x.dims.size() + 1;
  if (!attribute.empty()) {
    if (attribute.size() != axes)
      return Bad("attribute \"scales\" has ", attribute.size(), " numbers; ", axes, " are needed");
    return std::vector<double>(attribute.begin(), attribute.end());
  }
  if (importer.HasInput(input)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> given,
                           importer.FloatsOf(input, "scales", static_cast<int64_t>(axes)));
    return std::vector<double>(given.begin(), given.end());
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, importer.IntsOf(3, "sizes"));
  if (sizes.size() != axes) return Bad("its sizes has ", sizes.size(), " numbers; ", axes, " are needed");
  std::vector<double> scales = {1};
  for (size_t i = 1; i < axes; ++i)
    scales.push_back(static_cast<double>(sizes[i]) / static_cast<double>(x.dims[i - 1]));
  return scales;
}

// The layer that scales the axes in this order, of which the last one has the channels, by these factors.
v1::Layer UpSamplingBy(const std::vector<double>& scales, const std::vector<int>& order, bool linear) {
  v1::Layer layer;
  const size_t rank = order.size();
  for (size_t i = 0; i + 1 < rank; ++i) {
    const int32_t size = static_cast<int32_t>(scales[static_cast<size_t>(order[i]) + 1]);
    if (rank == 2) layer.mutable_up_sampling1d()->set_size(size);
    if (rank == 3) layer.mutable_up_sampling2d()->add_size(size);
    if (rank == 4) layer.mutable_up_sampling3d()->add_size(size);
  }
  if (rank == 3)
    layer.mutable_up_sampling2d()->set_interpolation(linear ? v1::UpSampling2D::BILINEAR : v1::UpSampling2D::NEAREST);
  return layer;
}

// Imports scaling of height and width by integer factors.
absl::Status ImportResize(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  const size_t rank = x.dims.size();
  if (rank < 2 || rank > 4)
    return Lacks("on an input ", ToString(x.dims), "; pictures, volumes and sequences are resized");
  // Before opset 9, Upsample has its factors as an attribute. Resize of opset 10 is the same as Upsample.
  const bool old = importer.node().op_type() == "Upsample" || importer.opset() < 11;
  OnnxAttributes attributes(importer.node());
  const std::string mode = attributes.Text("mode", "nearest");
  const std::string places = attributes.Text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  const std::string rounds = attributes.Text("nearest_mode", old ? "floor" : "round_prefer_floor");
  const std::vector<float> factors = attributes.Floats("scales");
  attributes.Only("antialias", 0, "Cairn does not smooth");
  for (const char* name : {"cubic_coeff_a", "exclude_outside", "extrapolation_value", "keep_aspect_ratio_policy"})
    attributes.Ignore(name);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  const bool half = places == "half_pixel" || places == "pytorch_half_pixel";
  const bool nearest = mode == "nearest" && (half ? rounds == "round_prefer_floor" || rounds == "round_prefer_ceil"
                                                  : places == "asymmetric" && rounds == "floor");
  const bool linear = mode == "linear" && half;
  if (!nearest && !linear) {
    return Lacks("mode ", absl::CEscape(mode.substr(0, 64)), " with coordinates ", absl::CEscape(places.substr(0, 64)),
                 " (", absl::CEscape(rounds.substr(0, 64)),
                 "); nearest and linear by half pixels, and nearest by asymmetric ones rounded down, are read");
  }
  if (linear && rank != 3) return Lacks("mode linear on an input ", ToString(x.dims), "; pictures are resized so");
  CAIRN_ASSIGN_OR_RETURN(const std::vector<double> scales, OnnxScales(importer, x, factors, old ? 1 : 2));
  int channels = -1;
  for (int axis = static_cast<int>(rank) - 1; axis >= 0; --axis) {
    const bool outer = axis == 0 || axis == static_cast<int>(rank) - 1;
    if (scales[static_cast<size_t>(axis) + 1] == 1 && (outer || channels < 0)) channels = axis;
  }
  for (const double scale : scales) {
    if (!(scale >= 1 && scale <= 1024 && scale == std::floor(scale)))
      return Lacks("a factor of ", scale, "; whole ones up to 1024 are read");
  }
  if (channels != 0 && channels != static_cast<int>(rank) - 1)
    return Lacks("it resizes the channels of its input ", ToString(x.dims));
  const std::vector<int> order = AxisLast(rank, channels);
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  const LayerKind kind = rank == 2   ? LayerKind::kUpSampling1D
                         : rank == 3 ? LayerKind::kUpSampling2D
                                     : LayerKind::kUpSampling3D;
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(kind, UpSamplingBy(scales, order, linear), {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
  return absl::OkStatus();
}

constexpr KerasClass kUpSampling1DKeras[] = {{"UpSampling1D", ReadUpSampling1D}};
constexpr KerasClass kUpSampling2DKeras[] = {{"UpSampling2D", ReadUpSampling2D}};
constexpr KerasClass kUpSampling3DKeras[] = {{"UpSampling3D", ReadUpSampling3D}};
constexpr OnnxOperator kOnnx[] = {{"Resize", ImportResize}, {"Upsample", ImportResize}};

}  // namespace

constinit const LayerType kUpSampling2DLayer = {
    .kind = LayerKind::kUpSampling2D,
    .field = v1::Layer::kUpSampling2D,
    .name = "up_sampling2d",
    .infer = InferUpSampling2D,
    .keras = kUpSampling2DKeras,
    .write_keras = WriteUpSampling2D,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

constinit const LayerType kUpSampling1DLayer = {
    .kind = LayerKind::kUpSampling1D,
    .field = v1::Layer::kUpSampling1D,
    .name = "up_sampling1d",
    .infer = InferUpSampling1D,
    .keras = kUpSampling1DKeras,
    .write_keras = WriteUpSampling1D,
    .write_onnx = WriteOnnx,
};

constinit const LayerType kUpSampling3DLayer = {
    .kind = LayerKind::kUpSampling3D,
    .field = v1::Layer::kUpSampling3D,
    .name = "up_sampling3d",
    .infer = InferUpSampling3D,
    .keras = kUpSampling3DKeras,
    .write_keras = WriteUpSampling3D,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
