// Launchers of recurrent layers and of masks of steps (recurrent.cu, step_masks.cu); formulas:
// common/model/recurrent.h. The invariants of kernels.h hold.
//
// The buffers of a recurrence are ordered by step first, in the order in which steps are computed: [steps, examples,
// numbers]. States and sums are float32; the inputs of products are of `type`.
#pragma once

#include "worker/backend/cudnn/kernels/kernels.h"

namespace cairn::cudnn::kernels {

// ---- dropout ----

// factors[i]: the factor of number begin + i of the layer (worker/backend/dropout.h). begin must be a multiple of 4.
Error DropoutFactors(Stream stream, int64_t begin, int64_t n, const StepKey* key, int node, float rate, float* factors);

// ---- steps ----

// PackSteps reorders [examples, steps, features] to [steps, examples, features], from the last step on if `backwards`,
// and multiplies by factors [examples, features] (may be null). UnpackSteps does the reverse, times the same factors.
struct Steps {
  int64_t examples = 0, steps = 0, features = 0;
  bool backwards = false;
  const float* factors = nullptr;
};
Error PackSteps(Stream stream, const Steps& s, const void* x, void* packed, DType type);
Error UnpackSteps(Stream stream, const Steps& s, const void* packed, void* x, DType type, bool add);

// h = from, or 0 if that is null; state (may be null) = h * factors (may be null).
Error StartState(Stream stream, int64_t n, const void* from, const float* factors, float* h, void* state, DType type);
// d = dh + dstate * factors (may be null); dstate may be null.
Error StateGradient(Stream stream, int64_t n, const float* dh, const float* dstate, const float* factors, void* d,
                    DType type, bool add);

// ---- one step ----

// kGruGates, then kGruCandidate: a GRU whose reset gate acts before the product; kGru: one whose gate acts after it.
enum class Cell : int32_t { kSimple, kLstm, kGru, kGruGates, kGruCandidate };

// What all steps of a recurrence have in common. Of a ConvLSTM each position of an example's state is a row of the
// cell, else each example is one.
struct CellShape {
  int64_t rows = 0, units = 0;
  int64_t positions = 1;    // rows of an example
  int64_t mask_stride = 0;  // numbers from one example's mask to the next one's
  Act f = Act::kTanh, gate = Act::kSigmoid;
  float f_alpha = 0, gate_alpha = 0;
  DType type = DType::kFloat32;
};

// What both passes of a step use. parts, [rows, parts * units]: before CellForward x W, for kSimple and kLstm plus
// h U; after it the arguments of the activations.
struct CellStep {
  CellShape shape;
  const float* mask = nullptr;     // of the first example: 0 where the step does not count; null: all count
  const float* factors = nullptr;  // dropout of the states that meet a product; may be null
  float* parts = nullptr;
  const float *h = nullptr, *c = nullptr;
  float* c_next = nullptr;
  float* candidate = nullptr;  // kGru: h U + b[1] of the third part
};

struct CellForwardStep : CellStep {
  const float* bias = nullptr;         // of x W; may be null
  const float* state_parts = nullptr;  // h U: kGru 3 parts, kGruGates 2, kGruCandidate the third one
  const float* state_bias = nullptr;   // of kGru's; may be null
  float* h_next = nullptr;
  void* state_next = nullptr;  // h_next as it meets the next product; may be null
  void* reset = nullptr;       // kGruGates: s(r) h, with dropout
};

// dh and dc are the gradients of the states after the step, and become those of the states before it, without the share
// that goes through the product with U.
struct CellBackwardStep : CellStep {
  const float* dy = nullptr;      // the gradient of the step's output; null: 0
  const float* dcell = nullptr;   // that of the step's c, where it is an output, too; null: 0
  const float* dstate = nullptr;  // that of state_next; null: 0
  float *dh = nullptr, *dc = nullptr;
  bool last = false;             // dh and dc are 0, and not read
  void* dparts = nullptr;        // of `parts`
  void* dstate_parts = nullptr;  // kGru: of state_parts; kGruGates and kGruCandidate: of kGruGates'
  void* dcandidate = nullptr;    // kGruCandidate: of its state_parts
  float* dreset = nullptr;       // kGruGates: of `reset`; becomes its share of the gradient of the state
};

Error CellForward(Stream stream, Cell cell, const CellForwardStep& s);
// kGruCandidate comes first: it writes the third part of dparts, and of dstate_parts the first of two; kGruGates the
// second ones.
Error CellBackward(Stream stream, Cell cell, const CellBackwardStep& s);

// ---- the output ----

enum class Merge : int32_t { kOne, kConcat, kSum, kMultiply, kAverage };

struct RecurrentOutput {
  const float* h = nullptr;  // [steps + 1, examples, positions, units]; null: there is no second one
  const float* c = nullptr;  // as h; the output of each position is followed by h and c. null: by nothing
  int64_t units = 0;
  bool backwards = false, turned = false, zero_masked = false;
};
struct RecurrentOutputs {
  int64_t examples = 0, steps = 0, positions = 1;
  bool sequences = false;
  Merge merge = Merge::kOne;
  RecurrentOutput of[2];
  const float* mask = nullptr;  // [examples, steps]; null: all count
};
Error JoinOutputs(Stream stream, const RecurrentOutputs& o, void* y, DType type);
// d: the gradient of the states h, or with `cells` c, of recurrence `which`, [steps or 1, examples, positions, units].
struct StatesOf {
  int which = 0;
  bool cells = false;
};
Error SplitOutputGradient(Stream stream, const RecurrentOutputs& o, const StatesOf& of, const void* dy, DType type,
                          float* d);

// ---- masks ----

// mask[row] = 1 if a number of the row is not `value`, else 0; y = x * mask.
Error MaskRows(Stream stream, int64_t rows, int64_t columns, float value, const void* x, float* mask, void* y,
               DType type);
// y = x * mask[row].
Error MultiplyByMask(Stream stream, int64_t rows, int64_t columns, const float* mask, const void* x, void* y,
                     DType type, bool add);
// The weights of the loss's rows where steps of the output are masked (RowWeights of worker/backend/loss.h): of a step
// that counts examples * given / (rows that count). given: the weights of the rows before, below 0 for rows that are
// ignored; null: all 1. A step has rows / steps rows.
struct MaskedRows {
  int64_t examples = 0, rows = 0, steps = 0;  // of all examples
  const float* mask = nullptr;
};
Error MaskedRowWeights(Stream stream, const MaskedRows& m, const float* given, float* weights);
// Sets what the loss made of masked rows to 0: gradients [rows, outputs] (may be null), results [rows, columns].
Error ClearMaskedRows(Stream stream, const MaskedRows& m, int64_t outputs, float* gradients, int64_t columns,
                      double* results);
Error MaskOfIds(Stream stream, int64_t n, const float* ids, float* mask);  // 0 where the id is 0
// The mean over the steps that count, 0 if none does: [examples, steps, channels] to [examples, channels].
Error MaskedAverage(Stream stream, int64_t examples, int64_t steps, int64_t channels, const float* mask, const void* x,
                    void* y, DType type);
Error MaskedAverageBackward(Stream stream, int64_t examples, int64_t steps, int64_t channels, const float* mask,
                            const void* dy, void* dx, DType type, bool add);
// Sets the scores [examples, heads, queries, keys] to `value` where the step of the query, or that of the key or the
// value, does not count. of: the masks of query, [examples, queries], value and key, [examples, keys]; each may be
// null.
struct AttentionMasks {
  int64_t examples = 0, heads = 0, queries = 0, keys = 0;
  const float* of[3] = {};
};
Error FillMaskedScores(Stream stream, const AttentionMasks& m, float value, void* scores, DType type);
// Sets the scores of keys that a query does not see to -infinity. rows: of all queries, those of an example and head
// one behind the other. A query sees the keys within less than `window` steps of it, and with `causal` none behind it.
struct SeenKeys {
  int64_t rows = 0, queries = 0, keys = 0;
  bool causal = false;
  int64_t window = 0;
};
Error HideScores(Stream stream, const SeenKeys& s, void* scores, DType type);

}  // namespace cairn::cudnn::kernels
