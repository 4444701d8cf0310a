#include "common/model/layers/window_axes.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/model/limits.h"

namespace cairn::layers {

absl::Status NeedAxes(const Shape& input, int rank) {
  if (rank == 1) return NeedSequence(input);
  if (rank == 2) return NeedImage(input);
  if (input.size() == 4) return absl::OkStatus();
  return Bad("its input is ", ToString(input),
             "; it needs [depth, height, width, channels], so give the input layer a shape such as [16,28,28,1]");
}

absl::Status ReadAxes(const char* field, int rank, int64_t fallback, Numbers* numbers, int64_t* out) {
  if (rank == 2) return ReadPair(field, fallback, numbers, out);
  if (!numbers->empty() && numbers->size() != 1 && numbers->size() != rank) {
    return Bad(field, " has ", numbers->size(), " numbers; give one", rank == 1 ? "" : ", or depth, height and width");
  }
  if (numbers->empty()) {
    if (fallback == 0)
      return Bad(field, " is missing; give one number", rank == 1 ? "" : ", or depth, height and width");
    numbers->Add(static_cast<int32_t>(fallback));
  }
  while (numbers->size() < rank) {
    const int32_t all = numbers->Get(0);
    numbers->Add(all);
  }
  for (int i = 0; i < rank; ++i) {
    out[i] = numbers->Get(i);
    if (out[i] <= 0) return Bad(field, " ", out[i], " is not positive; use 1 or more");
    if (out[i] > kWindowMax) return Bad(field, " ", out[i], " is too large; the limit is ", kWindowMax);
  }
  return absl::OkStatus();
}

absl::Status ReadEnds(const char* field, int rank, int32_t fallback, Numbers* numbers, int32_t* ends) {
  if (rank == 2) return ReadSides(field, fallback, numbers, ends);
  const Numbers given = *numbers;
  const int count = given.size();
  if (count != 0 && count != 1 && count != rank && count != 2 * rank) {
    return Bad(field, " has ", count, " numbers; give one",
               rank == 1 ? " or two (begin, end)"
                         : ", three (depth, height, width) or six (begin and end of depth, height and width)");
  }
  numbers->Clear();
  for (int i = 0; i < 2 * rank; ++i) {
    ends[i] = count == 0 ? fallback : count == 2 * rank ? given[i] : count == 1 ? given[0] : given[i / 2];
    if (ends[i] < 0 || ends[i] > kWindowMax) return Bad(field, " ", ends[i], " is outside 0 .. ", kWindowMax);
    numbers->Add(ends[i]);
  }
  return absl::OkStatus();
}

absl::Status CheckAxes(const Window& window, int rank) {
  bool strides = false, dilated = false;
  for (int i = 0; i < rank; ++i) {
    strides = strides || AxisOf(window, rank, i).stride > 1;
    dilated = dilated || AxisOf(window, rank, i).dilation > 1;
  }
  if (strides && dilated) return Bad("strides and dilation_rate are both above 1; set one of them to 1");
  return absl::OkStatus();
}

absl::Status SlideAxes(const char* what, int rank, const Shape& input, v1::Padding padding, Node* node) {
  if (rank == 2) return SlideWindow(what, input, padding, &node->window, &node->output);
  for (int i = 0; i < rank; ++i) {
    WindowAxis axis = AxisOf(node->window, rank, i);
    int64_t& output = node->output[static_cast<size_t>(i)];
    output = SlideAxis(input[static_cast<size_t>(i)], padding, &axis);
    if (output == 0) {
      return Bad(what, " of ", ReachOf(axis), rank == 1 ? " steps" : " along one axis",
                 axis.dilation > 1 ? " (dilated)" : "", " is larger than its input ", ToString(input),
                 "; use a smaller one or padding: SAME");
    }
    SetAxis(axis, rank, i, &node->window);
  }
  return absl::OkStatus();
}

Shape KernelShape(const Window& window, int rank, int64_t before_last, int64_t last) {
  Shape shape = KernelSizes(window, rank);
  shape.push_back(before_last);
  shape.push_back(last);
  return shape;
}

// ---- Keras ----

v1::Padding PaddingOrCausal(KerasConfig& c) {
  std::string text;
  const Json* given = c.Take("padding");
  if (given == nullptr) return v1::VALID;
  if (given->is_string()) text = absl::AsciiStrToLower(given->get<std::string>());
  if (text == "same") return v1::SAME;
  if (text == "causal") return v1::CAUSAL;
  if (text != "valid")
    c.Refuse(absl::StrCat("padding: ", ShownJson(*given), " is not supported; use valid, same or causal"));
  return v1::VALID;
}

void WritePaddingOrCausal(v1::Padding padding, KerasWriter* c) {
  c->Padding(padding);
  if (padding == v1::CAUSAL) (*c)["padding"] = "causal";
}

void WriteEnds(const char* key, const Numbers& ends, KerasWriter* c) {
  if (ends.size() == 2) return c->Ints(key, ends);
  OrderedJson& pairs = (*c)[key] = OrderedJson::array();
  for (int i = 0; i + 1 < ends.size(); i += 2) pairs.push_back({ends[i], ends[i + 1]});
}

// ---- ONNX ----

void WriteOnnxAxes(OnnxWriter& w, const Node& node, int rank, bool dilations) {
  std::vector<int64_t> strides, rates, begins, ends;
  for (int i = 0; i < rank; ++i) {
    const WindowAxis axis = AxisOf(node.window, rank, i);
    strides.push_back(axis.stride);
    rates.push_back(axis.dilation);
    begins.push_back(axis.pad_begin);
    ends.push_back(axis.pad_end);
  }
  w.Ints("kernel_shape", KernelSizes(node.window, rank));
  w.Ints("strides", strides);
  if (dilations) w.Ints("dilations", rates);
  begins.insert(begins.end(), ends.begin(), ends.end());
  w.Ints("pads", begins);
}

std::vector<int> KernelToFront(int rank) {
  std::vector<int> axes = {rank + 1, rank};
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  return axes;
}

std::vector<int64_t> KernelSizes(const Window& window, int rank) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < rank; ++i) sizes.push_back(AxisOf(window, rank, i).kernel);
  return sizes;
}

}  // namespace cairn::layers
