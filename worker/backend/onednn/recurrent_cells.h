// The cells of recurrent layers: what is computed between their matrix products, one step of all examples at a time,
// forward and backward (common/model/recurrent.h has the formulas).
//
// Thread-safe. A row is an example, of a ConvLSTM a position of one; each row is computed on one thread, number by
// number, so that the bits depend neither on the number of threads nor on the vector width. The functions e^x and tanh
// are polynomials of our own, right to 2e-7 of the larger of the result and, for a sigmoid, 1e-7.
#pragma once

#include <cstdint>

#include "worker/backend/onednn/kernels.h"

namespace cairn::onednn {

struct CellShape {
  int64_t rows = 0, units = 0;
  Activation f, gate;  // activation, recurrent_activation
  // Whether backward needs the numbers before an activation. Then `raw` is not null.
  bool keeps_raw() const { return f.needs_input() || gate.needs_input(); }
};

// Which rows count in a step; begin null: all. An example has `rows` of them.
struct StepMask {
  const float* begin = nullptr;
  int64_t stride = 0, rows = 1;
  bool Counts(int64_t row) const { return begin == nullptr || begin[row / rows * stride] != 0; }
};

// parts, [rows, parts * units]: what the activations are applied to, in place. raw: takes a copy from before the
// activations, or null. h, c: the states before the step; h_next, c_next: those after it.
void SimpleForward(const CellShape& s, const StepMask& mask, float* parts, float* raw, const float* h, float* h_next);
// dh: the gradient of h_next; becomes the share of that of h that does not go through a product. dparts: takes the
// gradient of `parts` before the activations.
void SimpleBackward(const CellShape& s, const StepMask& mask, const float* parts, const float* raw, float* dh,
                    float* dparts);

// The states before and after a step. f_c: f(c_next).
struct LstmStates {
  const float* h = nullptr;
  const float* c = nullptr;
  float* h_next = nullptr;
  float* c_next = nullptr;
  float* f_c = nullptr;
};
// h, parts: as dh and dparts of SimpleBackward. c: the gradient of c_next; becomes that of c.
struct LstmGradients {
  float* h = nullptr;
  float* c = nullptr;
  float* parts = nullptr;
};
void LstmForward(const CellShape& s, const StepMask& mask, float* parts, float* raw, const LstmStates& states);
void LstmBackward(const CellShape& s, const StepMask& mask, const float* parts, const float* raw,
                  const LstmStates& states, const LstmGradients& to);

// GRU with reset_after. state_parts: h U + b[1]; candidate, [rows, units]: takes its third part. Backward reads h
// and candidate alone.
struct GruStates {
  const float* h = nullptr;
  const float* state_parts = nullptr;
  float* candidate = nullptr;
  float* h_next = nullptr;
};
// h, parts: as dh and dparts of SimpleBackward. state_parts: takes the gradient of GruStates::state_parts.
struct GruGradients {
  float* h = nullptr;
  float* parts = nullptr;
  float* state_parts = nullptr;  // with reset_after
};
void GruAfterForward(const CellShape& s, const StepMask& mask, float* parts, float* raw, const GruStates& states);
void GruAfterBackward(const CellShape& s, const StepMask& mask, const float* parts, const float* raw,
                      const GruStates& states, const GruGradients& to);

// GRU without reset_after. Computes the first two parts, and what meets the third part of the recurrent kernel: reset =
// s(r) state. state: h after dropout.
void GruGatesForward(const CellShape& s, float* parts, float* raw, const float* state, float* reset);
void GruCandidateForward(const CellShape& s, const StepMask& mask, float* parts, float* raw, const float* h,
                         float* h_next);
// Computes the first and the third part of to.parts.
void GruCandidateBackward(const CellShape& s, const StepMask& mask, const float* parts, const float* raw,
                          const float* h, const GruGradients& to);
// Computes the second part of dparts. dreset: the gradient of `reset`; becomes its share of the gradient of `state`.
void GruGatesBackward(const CellShape& s, const float* parts, const float* raw, const float* state, float* dreset,
                      float* dparts);

// ActivateRow: y = f(x); y may be x. SlopeRow: g = g * f'(x), where y = f(x); x is read only if f.needs_input().
void ActivateRow(const Activation& f, const float* x, float* y, int64_t count);
void SlopeRow(const Activation& f, const float* x, const float* y, float* g, int64_t count);

}  // namespace cairn::onednn
