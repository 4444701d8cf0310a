#include "worker/backend/cudnn/plan.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace cairn::cudnn {

const char* Name(DType type) {
  switch (type) {
    case DType::kBFloat16: return "bf16";
    case DType::kFloat16: return "f16";
    default: return "f32";
  }
}

std::string ToString(const Product& p) {
  std::string text = absl::StrCat(p.m, "x", p.n, "x", p.k);
  if (p.batch > 1) absl::StrAppend(&text, " *", p.batch);
  if (p.transpose_a) text += " ta";
  if (p.transpose_b) text += " tb";
  if (p.alpha != 1) absl::StrAppend(&text, " alpha ", p.alpha);
  if (p.beta != 0) text += " add";
  if (p.bias) text += " bias";
  if (p.relu) text += " relu";
  return absl::StrCat(text, " ", Name(p.out));
}

std::string ToString(const Convolution& c) {
  const kernels::Window& w = c.window;
  std::string text =
      absl::StrCat(w.examples, "x", w.in[0], "x", w.in[1], "x", w.in[2], " ", w.kernel[0], "x", w.kernel[1]);
  if (w.strides[0] != 1 || w.strides[1] != 1) absl::StrAppend(&text, "/", w.strides[0], "x", w.strides[1]);
  if (w.dilation[0] != 1 || w.dilation[1] != 1) absl::StrAppend(&text, " dilated ", w.dilation[0], "x", w.dilation[1]);
  if (w.pad[0] != 0 || w.pad[1] != 0) absl::StrAppend(&text, " pad ", w.pad[0], "x", w.pad[1]);
  const kernels::Depth& d = w.depth;
  if (d.in != 1 || d.out != 1 || d.kernel != 1)
    absl::StrAppend(&text, " depth ", d.in, " ", d.kernel, "/", d.stride, " dilated ", d.dilation, " pad ", d.pad,
                    " -> ", d.out);
  if (w.groups != 1) absl::StrAppend(&text, " groups ", w.groups);
  return absl::StrCat(text, " -> ", w.out[0], "x", w.out[1], "x", w.out[2], c.bias ? " bias" : "",
                      c.relu ? " relu" : "");
}

bool operator<(const Convolution& a, const Convolution& b) {
  if (a.kind != b.kind) return a.kind < b.kind;
  if (a.bias != b.bias) return a.bias < b.bias;
  if (a.relu != b.relu) return a.relu < b.relu;
  const auto key = [](const kernels::Window& w) {
    return std::array<int64_t, 22>{w.depth.in,  w.depth.out,  w.depth.kernel, w.depth.stride, w.depth.dilation,
                                   w.depth.pad, w.groups,     w.examples,     w.in[0],        w.in[1],
                                   w.in[2],     w.out[0],     w.out[1],       w.out[2],       w.kernel[0],
                                   w.kernel[1], w.strides[0], w.strides[1],   w.dilation[0],  w.dilation[1],
                                   w.pad[0],    w.pad[1]};
  };
  return key(a.window) < key(b.window);
}

std::string Plan::Text() const {
  std::string text;
  for (const Step& step : steps_) absl::StrAppend(&text, step.text, "\n");
  for (const Segment& s : segments_) absl::StrAppend(&text, "from ", s.begin, ": values [0, ", s.values_end, ")\n");
  for (const Release& r : releases_)
    absl::StrAppend(&text, "after ", r.after, ": gradients [", r.begin, ", ", r.end, ")\n");
  return absl::StrCat(text, "arena ", arena_bytes_, "\n");
}

absl::Status Plan::Enqueue(int i, const Run& run) const {
  const absl::Status status = steps_[i].enqueue(run);
  if (status.ok()) return status;
  return Annotate(status, absl::StrCat("layer \"", steps_[i].layer, "\": ", steps_[i].text));
}

}  // namespace cairn::cudnn
