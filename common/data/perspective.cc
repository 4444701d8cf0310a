#include "common/data/perspective.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cairn {
namespace {

constexpr int kUnknowns = 8;

// Gaussian elimination with pivoting; false: the rows are linearly dependent.
bool Solve(double (&rows)[kUnknowns][kUnknowns + 1], Projection* solution) {
  for (int i = 0; i < kUnknowns; ++i) {
    int best = i;
    for (int j = i + 1; j < kUnknowns; ++j) {
      if (std::fabs(rows[j][i]) > std::fabs(rows[best][i])) best = j;
    }
    if (!(std::fabs(rows[best][i]) > 1e-12)) return false;
    std::swap(rows[i], rows[best]);
    for (int j = i + 1; j < kUnknowns; ++j) {
      const double factor = rows[j][i] / rows[i][i];
      for (int k = i; k <= kUnknowns; ++k) rows[j][k] -= factor * rows[i][k];
    }
  }
  for (int i = kUnknowns; i-- > 0;) {
    double sum = rows[i][kUnknowns];
    for (int k = i + 1; k < kUnknowns; ++k) sum -= rows[i][k] * (*solution)[static_cast<size_t>(k)];
    (*solution)[static_cast<size_t>(i)] = sum / rows[i][i];
  }
  return true;
}

}  // namespace

Projection ProjectionOf(const std::array<Point2, 4>& from, const std::array<Point2, 4>& to) {
  double rows[kUnknowns][kUnknowns + 1] = {};
  for (size_t i = 0; i < 4; ++i) {
    const auto [x, y] = to[i];
    const auto [u, v] = from[i];
    const double first[] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u}, second[] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
    std::copy(std::begin(first), std::end(first), rows[2 * i]);
    std::copy(std::begin(second), std::end(second), rows[2 * i + 1]);
  }
  Projection projection{};
  return Solve(rows, &projection) ? projection : Projection{};
}

void Project(const PictureShape3& shape, const Projection& a, bool nearest, float fill, const float* in, float* out) {
  const auto pixel = [&](int64_t x, int64_t y, int64_t c) {
    const bool inside = x >= 0 && y >= 0 && x < shape.width && y < shape.height;
    return inside ? in[y * shape.row() + x * shape.channels + c] : fill;
  };
  // So far outside only the fill value counts. The bound keeps floors within the range of integers.
  const auto kept = [](double place) { return std::isfinite(place) ? std::clamp(place, -1e6, 1e6) : -1e6; };
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t x = 0; x < shape.width; ++x, out += shape.channels) {
      const double px = static_cast<double>(x), py = static_cast<double>(y), d = a[6] * px + a[7] * py + 1;
      const double u = kept((a[0] * px + a[1] * py + a[2]) / d), v = kept((a[3] * px + a[4] * py + a[5]) / d);
      const double left = std::floor(nearest ? u + 0.5 : u), top = std::floor(nearest ? v + 0.5 : v);
      const int64_t column = static_cast<int64_t>(left), row = static_cast<int64_t>(top);
      const float across = static_cast<float>(u - left), down = static_cast<float>(v - top);
      for (int64_t c = 0; c < shape.channels; ++c) {
        const float first = pixel(column, row, c);
        out[c] = first;
        if (nearest) continue;
        const float above = first + (pixel(column + 1, row, c) - first) * across, third = pixel(column, row + 1, c);
        const float below = third + (pixel(column + 1, row + 1, c) - third) * across;
        out[c] = above + (below - above) * down;
      }
    }
  }
}

}  // namespace cairn
