// UpSampling2D.
#include <cmath>

#include "absl/strings/escaping.h"
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/layers/windows.h"
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

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::UpSampling2D& up = node.layer.up_sampling2d();
  const std::string x = w.In(node, 0, Channels::kFirst);
  const std::string scales =
      w.Numbers("scales", {4}, {1, 1, static_cast<float>(up.size(0)), static_cast<float>(up.size(1))});
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

// By whole factors, of height and width.
absl::Status ImportResize(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  if (x.dims.size() != 3) return Lacks("on an input ", ToString(x.dims), "; pictures are resized");
  // Upsample has its factors as an attribute before opset 9; Resize is as Upsample in opset 10.
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
  std::vector<double> scales;
  const int scales_input = old ? 1 : 2;
  if (!factors.empty()) {
    if (factors.size() != 4) return Bad("attribute \"scales\" has ", factors.size(), " numbers; 4 are needed");
    scales.assign(factors.begin(), factors.end());
  } else if (importer.HasInput(scales_input)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> given, importer.FloatsOf(scales_input, "scales", 4));
    scales.assign(given.begin(), given.end());
  } else {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, importer.IntsOf(3, "sizes"));
    if (sizes.size() != 4) return Bad("its sizes has ", sizes.size(), " numbers; 4 are needed");
    scales = {1};
    for (size_t i = 1; i < 4; ++i) scales.push_back(static_cast<double>(sizes[i]) / static_cast<double>(x.dims[i - 1]));
  }
  int channels = -1;
  for (int axis = 2; axis >= 0; --axis) {
    if (scales[static_cast<size_t>(axis) + 1] == 1 && (axis != 1 || channels < 0)) channels = axis;
  }
  for (const double scale : scales) {
    if (!(scale >= 1 && scale <= 1024 && scale == std::floor(scale)))
      return Lacks("a factor of ", scale, "; whole ones up to 1024 are read");
  }
  if (channels != 0 && channels != 2) return Lacks("it resizes the channels of its input ", ToString(x.dims));
  const std::vector<int> order = AxisLast(3, channels);
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, order));
  v1::Layer layer;
  for (int i = 0; i < 2; ++i)
    layer.mutable_up_sampling2d()->add_size(
        static_cast<int32_t>(scales[static_cast<size_t>(order[static_cast<size_t>(i)]) + 1]));
  layer.mutable_up_sampling2d()->set_interpolation(linear ? v1::UpSampling2D::BILINEAR : v1::UpSampling2D::NEAREST);
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kUpSampling2D, layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
  return absl::OkStatus();
}

constexpr KerasClass kKeras[] = {{"UpSampling2D", ReadUpSampling2D}};
constexpr OnnxOperator kOnnx[] = {{"Resize", ImportResize}, {"Upsample", ImportResize}};

}  // namespace

constinit const LayerType kUpSampling2DLayer = {
    .kind = LayerKind::kUpSampling2D,
    .field = v1::Layer::kUpSampling2D,
    .name = "up_sampling2d",
    .infer = InferUpSampling2D,
    .keras = kKeras,
    .write_keras = WriteUpSampling2D,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
};

}  // namespace cairn::layers
