// Launchers of layers that move numbers, and of those that choose among them (moves.cu, choices.cu). The invariants of
// kernels.h hold. Tensors are dense.
#pragma once

#include "worker/backend/cudnn/kernels/tensors.h"

namespace cairn::cudnn::kernels {

// ---- moves (moves.cu): Pad, Tile and Take of worker/backend/tensor_moves.h ----

// Each axis of the output reads the input at places of its own. `places` has for each place along an axis of the output
// the input's, or -1, of all axes one behind the other; begin: where an axis begins there, or -1: it is read as it is.
struct Moves {
  Dims from, to;
  const int32_t* places = nullptr;
  int64_t begin[kAxesMax] = {-1, -1, -1, -1, -1, -1};
};
// y = x at its places; `constant` where one of them is -1.
Error Move(Stream stream, const Moves& m, float constant, const void* x, void* y, DType type);
// dx: the sum of dy over the places that read it, in their order. Of each axis that has places, at `begin` of
// `readers`: from.of[axis] + 1 indices; from each place's index to the next one's the output's places that read it, in
// `readers`.
struct Readers {
  const int32_t* readers = nullptr;
  int64_t begin[kAxesMax] = {-1, -1, -1, -1, -1, -1};
};
Error MoveBackward(Stream stream, const Moves& m, const Readers& readers, const void* dy, void* dx, DType type,
                   bool add);

// ---- choices (choices.cu) ----

// y, [outer, classes, inner], is 1 at the class of each number of x, [outer, inner], which is cut to a whole one; else
// 0.
struct Classes {
  int64_t outer = 1, classes = 1, inner = 1;
};
Error OneHot(Stream stream, const Classes& c, const void* x, DType x_type, void* y, DType type);

// The k largest numbers of each row of `size`, the largest first, or their places. Of equal numbers the first one comes
// first; what is not a number comes before all numbers.
struct Largest {
  int64_t rows = 0, size = 0, k = 0;
  bool indices = false;
};
// places: takes the numbers' places in their rows, [rows, k].
Error TopK(Stream stream, const Largest& t, const void* x, DType x_type, void* y, DType y_type, int32_t* places);
// Adds dy to dx at the places.
Error TopKBackward(Stream stream, const Largest& t, const int32_t* places, const void* dy, DType dy_type, void* dx,
                   DType dx_type);

}  // namespace cairn::cudnn::kernels
