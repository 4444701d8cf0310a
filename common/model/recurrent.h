// Recurrence: what a recurrent layer computes, the same for SimpleRNN, LSTM and GRU: one recurrence, or, of a
// Bidirectional, two whose outputs are merged. Backends read this, not the layers' messages.
//
// For each example a recurrence goes over the steps x of its input, with the state h (and of an LSTM c) of the step
// before; W, U, b are kernel, recurrent_kernel and bias, f is `activation`, s is `recurrent_activation`:
//   SimpleRNN  h' = f(x W + b + h U)
//   LSTM       i, g, a, o = x W + b + h U in four parts; c' = s(g) c + s(i) f(a); h' = s(o) f(c')
//   GRU        z, r, a in three parts; h' = s(z) h + (1 - s(z)) f(a), where z and r are x W + b + h U, and a is
//              x W + b + (s(r) h) U, or, with reset_after, x W + b[0] + s(r) (h U + b[1])
// Dropout multiplies x and the h of the products by masks that are the same for all steps and parts (Gal & Ghahramani
// 2016). A step that is masked keeps h and c as they are.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/model.pb.h"
#include "common/model/graph.h"

namespace cairn {

enum class RecurrentCell { kSimple, kLstm, kGru };

struct Recurrence {
  RecurrentCell cell = RecurrentCell::kSimple;
  int64_t units = 0;
  int64_t units_before = 0;  // of the first recurrence, in the second one
  v1::Activation activation = v1::LINEAR, recurrent_activation = v1::LINEAR;
  bool reset_after = false;  // GRU
  float dropout = 0, recurrent_dropout = 0;
  bool has_bias = false;
  bool return_sequences = false;
  bool go_backwards = false;  // begins with the last step of the input
  // With return_sequences: the output of the first step that is computed stands last.
  bool turned = false;
  // The output of a masked step is 0; else that of the step computed before it, 0 if there is none.
  bool zero_masked = false;
  int kernel = -1, recurrent_kernel = -1, bias = -1;  // indices into Graph::variables(); bias -1: none
  // Node.inputs of its first state: h, then c; -1: zeros.
  int state_input = -1;

  int64_t gates() const { return cell == RecurrentCell::kSimple ? 1 : cell == RecurrentCell::kLstm ? 4 : 3; }
  int64_t states() const { return cell == RecurrentCell::kLstm ? 2 : 1; }
};

// How the outputs of two recurrences become one. kOne: there is one only.
enum class RecurrentMerge { kOne, kConcat, kSum, kMultiply, kAverage };

struct RecurrentLayer {
  std::vector<Recurrence> recurrences;  // one or two
  RecurrentMerge merge = RecurrentMerge::kOne;
};

bool IsRecurrent(LayerKind kind);  // SimpleRNN, LSTM, GRU, Bidirectional
// Of such a layer, checked, without its variables and inputs.
std::vector<Recurrence> RecurrencesOf(const v1::Layer& layer);
// Of a node of a built graph that IsRecurrent.
RecurrentLayer RecurrentLayerOf(const Graph& graph, const Node& node);

// Whether a recurrent layer can have it: one number makes one number.
bool IsElementwise(v1::Activation activation);
float RecurrentAlpha(v1::Activation activation);  // as DefaultAlpha (activation_numbers.h)

// Where the numbers of a recurrence's masks begin in the layer's stream of dropout (worker/backend/dropout.h): of the
// input, [examples, features], or of the state, [examples, units]. Multiples of 4.
int64_t RecurrentMaskBegin(const Recurrence& r, bool of_state, int64_t examples, int64_t features);

// Which part of the variable begins as ones: the forget gate's of an LSTM's bias (unit_forget_bias; Jozefowicz et al.
// 2015). False: none.
bool FindForgetBias(const Graph& graph, const Variable& variable, int64_t* begin, int64_t* end);

}  // namespace cairn
