#include <optional>

#include "worker/backend/onednn/image_layout.h"
#include "worker/backend/onednn/loop_op.h"
#include "worker/backend/onednn/max_windows.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;

// nullopt: the windows overlap, reach over the edge or lie in another layout.
std::optional<WindowGrid> GridOf(const Node& node, const Desc& in) {
  if (in.data_type() != memory::data_type::f32) return std::nullopt;
  const memory::dims dims = in.dims();
  const ImageLayout layout(in);
  if (layout.block == 1 || layout.pixel_stride != layout.block) return std::nullopt;
  if (in.data.format_desc.blocking.strides[2] != dims[3] * layout.pixel_stride) return std::nullopt;
  const Window& w = node.window;
  WindowGrid grid{.height = dims[2],
                  .width = dims[3],
                  .channels = layout.block,
                  .rows = node.output.size() == 3 ? node.output[0] : 1,
                  .columns = node.output.size() == 1 ? 1 : node.output[node.output.size() - 2],
                  .window_height = w.kernel[0],
                  .window_width = w.kernel[1],
                  .row_step = w.strides[0],
                  .column_step = w.strides[1]};
  if (grid.window_height * grid.window_width > kPlacesOfByte) return std::nullopt;
  const auto apart = [&](int axis, int64_t size, int64_t count) {
    return w.pad_begin[axis] == 0 && (count == 1 || w.strides[axis] >= w.kernel[axis]) &&
           (count - 1) * w.strides[axis] + w.kernel[axis] <= size;
  };
  if (!apart(0, grid.height, grid.rows) || !apart(1, grid.width, grid.columns)) return std::nullopt;
  return grid;
}

// The layout of `in`, for fewer pixels.
std::optional<Desc> SameLayout(const Desc& in, const WindowGrid& grid) {
  const memory::dims dims = {in.dims()[0], in.dims()[1], grid.rows, grid.columns};
  if (in.data.format_desc.blocking.inner_nblks == 0) return MakeDesc(dims, Tag::nhwc);
  if (grid.channels == 8) return MakeDesc(dims, Tag::nChw8c);
  if (grid.channels == 16) return MakeDesc(dims, Tag::nChw16c);
  return std::nullopt;
}

// As PoolingOp of pooling.cc, with loops in place of oneDNN's.
class MaxWindowsOp : public Op {
 public:
  MaxWindowsOp(PlanBuilder& b, const WindowGrid& grid, const Desc& desc, Value* in, Value* out)
      : in_(in), out_(out), grid_(grid), layout_(in->data->desc), out_layout_(desc) {
    b.Use(in->data);
    out->data = b.New(desc);
    if (!b.training()) return;
    places_ = b.NewBytes(out->data->numbers());
    if (in->readers == 1 && !in->activation.linear()) {
      in->activation_undone = true;
      undo_ = true;
      out->may_overwrite = false;
    }
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    b.Use(out_->gradient);
    b.Use(places_);
    if (undo_) b.Use(out_->data);
    sink_ = b.WriteGradient(in_, in_->data->desc);
  }

  void Forward(const Run&) override {
    const float* const x = in_->data->data();
    float* const y = out_->data->data();
    uint8_t* const places = this->places();
    ForBlocks([&](int64_t from, int64_t to) {
      MaximaOfWindows(grid_, x + from, y + to, places == nullptr ? nullptr : places + to);
    });
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    if (undo_) {
      ActivationBackward(in_->activation, out_->data->data(), out_->gradient->data(), out_->gradient->numbers());
    }
    const float* const dy = out_->gradient->data();
    float* const dx = sink_.tensor->data();
    ForBlocks([&](int64_t to, int64_t from) { MaximaBackward(grid_, dy + from, places() + from, dx + to); });
    sink_.Finish(run);
  }

 private:
  // Calls fn(where it begins in the input, where in the output) for each block of channels of each example.
  template <typename Fn>
  void ForBlocks(const Fn& fn) const {
    const int64_t blocks = layout_.padded_channels / layout_.block;
    ForExamples(layout_.examples * blocks, layout_.examples * layout_.padded_channels * layout_.pixels, [&](int64_t i) {
      const int64_t e = i / blocks, k = i % blocks;
      fn(e * layout_.example_stride + k * layout_.block_stride,
         e * out_layout_.example_stride + k * out_layout_.block_stride);
    });
  }
  uint8_t* places() const { return places_ == nullptr ? nullptr : reinterpret_cast<uint8_t*>(places_->data()); }

  Value* const in_;
  Value* const out_;
  const WindowGrid grid_;
  const ImageLayout layout_, out_layout_;
  Tensor* places_ = nullptr;  // where in its window each maximum was; null: no training
  Sink sink_;
  bool undo_ = false;  // the derivative of the input's activation is taken here, as in PoolingOp
};

}  // namespace

std::unique_ptr<Op> MakeDisjointMaxPooling(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  const std::optional<WindowGrid> grid = GridOf(node, in->data->desc);
  if (!grid) return nullptr;
  const std::optional<Desc> desc = SameLayout(in->data->desc, *grid);
  return desc ? std::make_unique<MaxWindowsOp>(b, *grid, *desc, in, out) : nullptr;
}

}  // namespace cairn::onednn
