#include "worker/backend/onednn/max_windows.h"

#include <cstring>
#include <limits>

#include "worker/backend/onednn/vector.h"

namespace cairn::onednn {
namespace {

// Inlined into each copy of a CAIRN_VECTOR function, so that it has that copy's vectors.
#define CAIRN_INLINE [[gnu::always_inline]] inline

// Vectors of neighbouring channels, written as such: GCC does not make vectors of these loops by itself.
constexpr int kLanes = 8;
template <typename T>
using Lanes [[gnu::vector_size(kLanes * sizeof(T))]] = T;

template <typename V>
CAIRN_INLINE void Load(const void* from, V& to) {
  std::memcpy(&to, from, sizeof(V));
}
template <typename V>
CAIRN_INLINE void Store(const V& from, void* to) {
  std::memcpy(to, &from, sizeof(V));
}

// Real and Place: numbers, or as many lanes of them. Byte: of places in memory.
template <typename Real, typename Place, typename Byte>
CAIRN_INLINE void MaximumOf(const WindowGrid& g, const float* x, float* y, uint8_t* places) {
  Real most = Real{} + std::numeric_limits<float>::lowest(), number;
  Place place{}, here{};
  for (int64_t i = 0; i < g.window_height; ++i) {
    for (int64_t j = 0; j < g.window_width; ++j, here += 1) {
      Load(x + (i * g.width + j) * g.channels, number);
      place = most < number ? here : place;
      most = most < number ? number : most;
    }
  }
  Store(most, y);
  if (places == nullptr) return;
  if constexpr (sizeof(Byte) == 1) {
    *places = static_cast<uint8_t>(place);
  } else {
    Store(__builtin_convertvector(place, Byte), places);
  }
}

template <typename Real, typename Place, typename Byte>
CAIRN_INLINE void GradientOf(const WindowGrid& g, const float* dy, const uint8_t* places, float* dx) {
  const Real zero{};
  Real gradient;
  Load(dy, gradient);
  gradient = zero + gradient;  // no -0
  Byte bytes;
  Load(places, bytes);
  Place place, here{};
  if constexpr (sizeof(Byte) == 1) {
    place = bytes;
  } else {
    place = __builtin_convertvector(bytes, Place);
  }
  for (int64_t i = 0; i < g.window_height; ++i) {
    for (int64_t j = 0; j < g.window_width; ++j, here += 1) {
      const Real share = place == here ? gradient : zero;
      Store(share, dx + (i * g.width + j) * g.channels);
    }
  }
}

CAIRN_INLINE int64_t Corner(const WindowGrid& g, int64_t row, int64_t column) {
  return (row * g.row_step * g.width + column * g.column_step) * g.channels;
}

CAIRN_VECTOR void Maxima(const WindowGrid& g, const float* x, float* y, uint8_t* places) {
  for (int64_t row = 0; row < g.rows; ++row) {
    for (int64_t column = 0; column < g.columns; ++column) {
      const float* const from = x + Corner(g, row, column);
      const int64_t to = (row * g.columns + column) * g.channels;
      int64_t c = 0;
      const auto at = [&] { return places == nullptr ? nullptr : places + to + c; };
      for (; c + kLanes <= g.channels; c += kLanes) {
        MaximumOf<Lanes<float>, Lanes<int32_t>, Lanes<uint8_t>>(g, from + c, y + to + c, at());
      }
      for (; c < g.channels; ++c) MaximumOf<float, int32_t, uint8_t>(g, from + c, y + to + c, at());
    }
  }
}

CAIRN_VECTOR void Gradients(const WindowGrid& g, const float* dy, const uint8_t* places, float* dx) {
  for (int64_t row = 0; row < g.rows; ++row) {
    for (int64_t column = 0; column < g.columns; ++column) {
      float* const to = dx + Corner(g, row, column);
      const int64_t from = (row * g.columns + column) * g.channels;
      int64_t c = 0;
      for (; c + kLanes <= g.channels; c += kLanes) {
        GradientOf<Lanes<float>, Lanes<int32_t>, Lanes<uint8_t>>(g, dy + from + c, places + from + c, to + c);
      }
      for (; c < g.channels; ++c) GradientOf<float, int32_t, uint8_t>(g, dy + from + c, places + from + c, to + c);
    }
  }
}

// Whether each pixel lies in a window.
bool Covers(const WindowGrid& g) {
  const auto whole = [](int64_t size, int64_t count, int64_t window, int64_t step) {
    return count == 1 ? window == size : window == step && count * step == size;
  };
  return whole(g.height, g.rows, g.window_height, g.row_step) &&
         whole(g.width, g.columns, g.window_width, g.column_step);
}

}  // namespace

void MaximaOfWindows(const WindowGrid& grid, const float* x, float* y, uint8_t* places) { Maxima(grid, x, y, places); }

void MaximaBackward(const WindowGrid& grid, const float* dy, const uint8_t* places, float* dx) {
  if (!Covers(grid)) std::memset(dx, 0, static_cast<size_t>(grid.image_numbers()) * sizeof(float));
  Gradients(grid, dy, places, dx);
}

}  // namespace cairn::onednn
