// SimpleRNN, LSTM, GRU, ConvLSTM, Bidirectional, and the masks of steps that they use: one recurrence (recurrence.h),
// or two whose outputs are merged.
#include "common/model/recurrent.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"
#include "worker/backend/onednn/recurrence.h"

namespace cairn::onednn {
namespace {

class RecurrentOp : public Op {
 public:
  RecurrentOp(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out)
      : layer_(RecurrentLayerOf(b.graph(), node)), in_(in), out_(out), examples_(b.examples()) {
    steps_ = b.graph().nodes()[node.inputs[0]].output[0];
    width_ = node.output.back();
    for (size_t i = 0; i < in.size(); ++i) {
      sources_.push_back(b.Read(in[i]->data, PlainDesc(examples_, b.graph().nodes()[node.inputs[i]].output)));
    }
    mask_ = b.StepMaskOf(node.inputs[0]);
    if (mask_ != nullptr) b.Use(mask_);
    positions_ = layer_.recurrences[0].windows.positions();
    const int64_t places = layer_.recurrences[0].return_sequences ? steps_ : 1;
    for (const Recurrence& r : layer_.recurrences) {
      runs_.push_back(std::make_unique<RecurrenceRun>(b, node, r));
      outputs_.push_back(b.New(MakeDesc({places * examples_ * positions_, r.units}, Tag::nc)));
      if (mask_ != nullptr) factors_.push_back(b.New(MakeDesc({places * examples_}, Tag::x)));
    }
    out->data = b.New(PlainDesc(examples_, node.output));
  }

  void CompileBackward(PlanBuilder& b) override {
    b.Use(out_->gradient);
    if (mask_ != nullptr) b.Use(mask_);
    for (Tensor* factors : factors_) b.Use(factors);
    if (layer_.merge == RecurrentMerge::kMultiply) {
      for (Tensor* output : outputs_) b.Use(output);
    }
    for (const auto& run : runs_) {
      run->CompileBackward(b);
      const size_t which = gradients_.size();
      gradients_.push_back(b.New(outputs_[which]->desc));
      cell_gradients_.push_back(layer_.recurrences[which].return_cell ? b.New(outputs_[which]->desc) : nullptr);
    }
    sinks_.resize(in_.size());
    for (size_t i = 0; i < in_.size(); ++i) {
      if (in_[i]->needs_gradient) sinks_[i] = b.WriteGradient(in_[i], sources_[i].tensor->desc);
    }
  }

  void Forward(const Run& run) override {
    for (const Source& source : sources_) source.Prepare(run);
    const float* const x = sources_[0].tensor->data();
    for (size_t which = 0; which < runs_.size(); ++which) {
      const Recurrence& r = layer_.recurrences[which];
      const auto state = [&](int i) {
        return r.state_input < 0 ? nullptr : sources_[r.state_input + i].tensor->data();
      };
      const float* const c = r.cell == RecurrentCell::kLstm ? state(1) : nullptr;
      runs_[which]->Forward(run, x, state(0), c, mask_ == nullptr ? nullptr : mask_->data());
      if (mask_ != nullptr) FindFactors(which);
      TakeOutputs(which);
    }
    ForEachOutput([&](const Row& row) {
      const float *const one = Of(outputs_, 0, row), *const two = Of(outputs_, 1, row);
      float* const y = out_->data->data() + row.out * width_;
      const int64_t units = layer_.recurrences[0].units;
      if (layer_.merge == RecurrentMerge::kOne || layer_.merge == RecurrentMerge::kConcat) {
        CopyOut(0, row, one, y);
        if (two != nullptr) CopyOut(1, row, two, y + layer_.recurrences[0].width());
        return;
      }
      for (int64_t u = 0; u < units; ++u) y[u] = Merged(one[u], two[u]);
    });
  }

  void BackwardVariables(const Run&) override {
    ForEachOutput([&](const Row& row) {
      const float* dy = out_->gradient->data() + row.out * width_;
      for (size_t which = 0; which < runs_.size(); ++which) {
        const int64_t units = layer_.recurrences[which].units;
        const bool multiplies = layer_.merge == RecurrentMerge::kMultiply;
        const float* const other = multiplies ? Of(outputs_, 1 - which, row) : nullptr;
        float* const to = Of(gradients_, which, row);
        const float factor = FactorOf(which, row) * (layer_.merge == RecurrentMerge::kAverage ? 0.5f : 1.0f);
        for (int64_t u = 0; u < units; ++u) {
          to[u] = factor * (multiplies ? dy[u] * other[u] : dy[u]);
        }
        if (layer_.recurrences[which].return_cell) {
          AddTo(dy + units, to, units);
          std::memcpy(Of(cell_gradients_, which, row), dy + 2 * units, units * sizeof(float));
        }
        if (layer_.merge == RecurrentMerge::kConcat) dy += layer_.recurrences[which].width();
      }
    });
    for (size_t which = 0; which < runs_.size(); ++which) {
      const Tensor* const cells = cell_gradients_[which];
      runs_[which]->Backward(mask_ == nullptr ? nullptr : mask_->data(), gradients_[which]->data(),
                             cells == nullptr ? nullptr : cells->data());
    }
  }

  void BackwardInputs(const Run& run) override {
    if (sinks_[0].tensor != nullptr) {
      std::memset(sinks_[0].tensor->data(), 0, sinks_[0].tensor->bytes);
      for (const auto& recurrence : runs_) recurrence->AddInputGradient(sinks_[0].tensor->data());
    }
    for (size_t which = 0; which < runs_.size(); ++which) {
      const Recurrence& r = layer_.recurrences[which];
      for (int i = 0; r.state_input >= 0 && i < r.states(); ++i) {
        Tensor* const to = sinks_[r.state_input + i].tensor;
        if (to == nullptr) continue;
        const float* const from = i == 0 ? runs_[which]->first_state_gradient() : runs_[which]->first_cell_gradient();
        std::memcpy(to->data(), from, examples_ * r.state_numbers() * sizeof(float));
      }
    }
    for (const Sink& sink : sinks_) {
      if (sink.tensor != nullptr) sink.Finish(run);
    }
  }

 private:
  // One example's numbers at one place, and one position, of the output. step[w]: that of recurrence w, as it computes
  // them; out: the row of the output; in: that of a step.
  struct Row {
    int64_t example = 0, out = 0, in = 0;
    int64_t step[2] = {0, 0};
  };
  template <typename Fn>
  void ForEachOutput(Fn fn) const {
    const bool sequence = layer_.recurrences[0].return_sequences;
    const int64_t places = sequence ? steps_ : 1;
#pragma omp parallel for schedule(static) if (places * examples_ * positions_ * width_ >= kParallelNumbersMin)
    for (int64_t e = 0; e < examples_; ++e) {
      for (int64_t place = 0; place < places; ++place) {
        Row row{.example = e};
        for (size_t which = 0; which < layer_.recurrences.size() && sequence; ++which) {
          row.step[which] = layer_.recurrences[which].turned ? steps_ - 1 - place : place;
        }
        for (int64_t position = 0; position < positions_; ++position) {
          row.out = (e * places + place) * positions_ + position;
          row.in = e * positions_ + position;
          fn(row);
        }
      }
    }
  }
  // A row of a buffer [steps, examples, positions, units]; null: there is no such recurrence.
  float* Of(const std::vector<Tensor*>& tensors, size_t which, const Row& row) const {
    if (which >= tensors.size()) return nullptr;
    const int64_t at = row.step[which] * examples_ * positions_ + row.in;
    return tensors[which]->data() + at * layer_.recurrences[which].units;
  }
  // A row of the output of one recurrence, and with return_cell the state behind it.
  void CopyOut(size_t which, const Row& row, const float* output, float* y) const {
    const Recurrence& r = layer_.recurrences[which];
    std::memcpy(y, output, r.units * sizeof(float));
    if (!r.return_cell) return;
    const int64_t step = r.return_sequences ? row.step[which] : steps_ - 1;
    std::memcpy(y + r.units, runs_[which]->StateBehind(step) + row.in * r.units, r.units * sizeof(float));
    std::memcpy(y + 2 * r.units, runs_[which]->CellBehind(step) + row.in * r.units, r.units * sizeof(float));
  }
  float FactorOf(size_t which, const Row& row) const {
    return factors_.empty() ? 1.0f : factors_[which]->data()[row.step[which] * examples_ + row.example];
  }
  float Merged(float one, float two) const {
    if (layer_.merge == RecurrentMerge::kMultiply) return one * two;
    return layer_.merge == RecurrentMerge::kAverage ? (one + two) * 0.5f : one + two;
  }

  // The factors of the outputs: 0 where the step is masked, or for all steps until one counts.
  void FindFactors(size_t which) {
    const Recurrence& r = layer_.recurrences[which];
    for (int64_t e = 0; e < examples_; ++e) {
      float seen = 0;
      for (int64_t step = 0; step < steps_; ++step) {
        const float here = mask_->data()[e * steps_ + runs_[which]->InputStep(step)];
        seen = r.zero_masked ? here : std::max(seen, here);
        const bool out = r.return_sequences || step + 1 == steps_;
        if (out) factors_[which]->data()[(r.return_sequences ? step : 0) * examples_ + e] = seen;
      }
    }
  }

  // Takes the states after the steps as outputs.
  void TakeOutputs(size_t which) {
    const Recurrence& r = layer_.recurrences[which];
    const int64_t places = r.return_sequences ? steps_ : 1;
    const float* const from = runs_[which]->StateBehind(steps_ - places);
    float* const to = outputs_[which]->data();
    if (mask_ == nullptr) {
      std::memcpy(to, from, places * examples_ * r.state_numbers() * sizeof(float));
      return;
    }
    const int64_t numbers = r.state_numbers();
    for (int64_t row = 0; row < places * examples_; ++row) {
      Scale(from + row * numbers, factors_[which]->data()[row], to + row * numbers, numbers);
    }
  }

  const RecurrentLayer layer_;
  const std::vector<Value*> in_;
  Value* const out_;
  const int64_t examples_;
  int64_t steps_ = 0, positions_ = 1, width_ = 0;  // positions_: of a ConvLSTM; width_: of a row of the output
  std::vector<Source> sources_;
  std::vector<Sink> sinks_;
  Tensor* mask_ = nullptr;  // [examples, steps]; null: every step counts
  std::vector<std::unique_ptr<RecurrenceRun>> runs_;
  std::vector<Tensor*> outputs_, gradients_;  // [places, examples, positions, units], in the order of computing
  std::vector<Tensor*> factors_;              // [places, examples]
  std::vector<Tensor*> cell_gradients_;       // of c; null: the recurrence gives no cell states
};

std::unique_ptr<Op> MakeRecurrent(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  return std::make_unique<RecurrentOp>(b, node, in, out);
}

// Steps in which some number is not mask_value count; the numbers of the others become 0.
class MaskingOp : public Op {
 public:
  MaskingOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : value_(node.layer.masking().mask_value()), in_(in), out_(out), rows_(b.examples() * node.output[0]) {
    width_ = node.output[1];
    source_ = b.Read(in->data, PlainDesc(b.examples(), node.output));
    mask_ = b.New(MakeDesc({rows_}, Tag::x));
    b.SetStepMask(node, mask_);
    out->data = b.New(PlainDesc(b.examples(), node.output));
  }

  void CompileBackward(PlanBuilder& b) override {
    if (!in_->needs_gradient) return;
    b.Use(out_->gradient);
    b.Use(mask_);
    sink_ = b.WriteGradient(in_, source_.tensor->desc);
  }

  void Forward(const Run& run) override {
    source_.Prepare(run);
    const float* const x = source_.tensor->data();
    for (int64_t row = 0; row < rows_; ++row) {
      const float* const from = x + row * width_;
      const bool counts = std::any_of(from, from + width_, [&](float number) { return number != value_; });
      mask_->data()[row] = counts ? 1.0f : 0.0f;
      Scale(from, mask_->data()[row], out_->data->data() + row * width_, width_);
    }
  }

  void BackwardInputs(const Run& run) override {
    if (sink_.tensor == nullptr) return;
    for (int64_t row = 0; row < rows_; ++row) {
      Scale(out_->gradient->data() + row * width_, mask_->data()[row], sink_.tensor->data() + row * width_, width_);
    }
    sink_.Finish(run);
  }

 private:
  const float value_;
  Value* const in_;
  Value* const out_;
  const int64_t rows_;
  int64_t width_ = 0;
  Source source_;
  Tensor* mask_ = nullptr;
  Sink sink_;
};

std::unique_ptr<Op> MakeMasking(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<MaskingOp>(b, node, in, out);
}

constexpr Layer kLayers[] = {
    {LayerKind::kSimpleRNN, CompileAll<MakeRecurrent>},  {LayerKind::kLSTM, CompileAll<MakeRecurrent>},
    {LayerKind::kGRU, CompileAll<MakeRecurrent>},        {LayerKind::kBidirectional, CompileAll<MakeRecurrent>},
    {LayerKind::kConvLSTM1D, CompileAll<MakeRecurrent>}, {LayerKind::kConvLSTM2D, CompileAll<MakeRecurrent>},
    {LayerKind::kConvLSTM3D, CompileAll<MakeRecurrent>}, {LayerKind::kMasking, CompileOne<MakeMasking>},
};

}  // namespace

absl::Span<const Layer> RecurrentLayers() { return kLayers; }

}  // namespace cairn::onednn
