#include "common/model/model_inputs.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

class InputOp : public Op {
 public:
  InputOp(PlanBuilder& b, const Node& node, float scale, float offset, bool channels_first, Value* out)
      : scale_(scale), offset_(offset), examples_(b.examples()) {
    if (b.graph().inputs().size() > 1) {
      example_ = ModelInputSize(b.graph());
      begin_ = node.input_offset;
      pixels_ = NumElements(node.output);
      inputs_ = b.NewInputs(MakeDesc({b.examples(), example_}, Tag::nc));
      out->data = out_ = b.New(PlainDesc(b.examples(), node.output));
      b.InputsAreCopied();
      return;
    }
    const Desc plain = PlainDesc(b.examples(), node.output);
    const Desc desc = channels_first ? MakeDesc(plain.dims(), Tag::nchw) : plain;
    channels_ = node.output.back();
    pixels_ = NumElements(node.output) / channels_;
    transpose_ = channels_first && channels_ > 1;
    inputs_ = b.NewInputs(transpose_ ? plain : desc);
    if (scale == 1 && offset == 0 && !transpose_) {
      out->data = inputs_;
      out->may_overwrite = false;
    } else {
      out->data = out_ = b.New(desc);
      b.InputsAreCopied();
    }
  }

  void Forward(const Run& run) override {
    if (out_ == nullptr) return;
    if (example_ > 0) return TakeColumns(run);
    const Rescaling all{.scale = scale_,
                        .offset = offset_,
                        .transpose = transpose_,
                        .examples = examples_,
                        .pixels = pixels_,
                        .channels = channels_};
    if (run.bytes != nullptr) {
      Rescale(all, run.bytes, out_->data());
    } else {
      Rescale(all, inputs_->data(), out_->data());
    }
  }

 private:
  void TakeColumns(const Run& run) {
    const Rescaling own{.scale = scale_, .offset = offset_, .pixels = pixels_};
    for (int64_t n = 0; n < examples_; ++n) {
      const int64_t from = n * example_ + begin_;
      float* const to = out_->data() + n * pixels_;
      if (run.bytes != nullptr) {
        Rescale(own, run.bytes + from, to);
      } else {
        Rescale(own, inputs_->data() + from, to);
      }
    }
  }

  const float scale_, offset_;
  const int64_t examples_;
  int64_t example_ = 0, begin_ = 0;  // of one of several inputs: numbers of an example, and where its own begin
  int64_t pixels_ = 0, channels_ = 0;
  bool transpose_ = false;
  Tensor* inputs_ = nullptr;
  Tensor* out_ = nullptr;  // null: the batch's own bytes will do
};

}  // namespace

std::unique_ptr<Op> MakeInput(PlanBuilder& b, const Node& node, float scale, float offset, bool channels_first,
                              Value* out) {
  return std::make_unique<InputOp>(b, node, scale, offset, channels_first, out);
}

}  // namespace cairn::onednn
