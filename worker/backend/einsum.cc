#include "worker/backend/einsum.h"

#include <string>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/model/einsum_equation.h"

namespace cairn {
namespace {

// An operand: the letters of its axes, and their sizes.
struct Operand {
  std::string letters;
  Shape shape;

  int64_t SizeOf(char letter) const { return shape[letters.find(letter)]; }
  int64_t StrideOf(char letter) const {
    int64_t stride = 1;
    for (size_t i = letters.find(letter) + 1; i < shape.size(); ++i) stride *= shape[i];
    return stride;
  }
};

int64_t Count(const Operand& of, const std::string& letters) {
  int64_t count = 1;
  for (const char c : letters) count *= of.SizeOf(c);
  return count;
}

// The indices in `of` of all combinations of the letters, the last letter fastest.
std::vector<int32_t> PlacesOf(const Operand& of, const std::string& letters) {
  std::vector<int32_t> places(static_cast<size_t>(Count(of, letters)));
  for (size_t i = 0; i < places.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), place = 0;
    for (size_t k = letters.size(); k-- > 0;) {
      place += rest % of.SizeOf(letters[k]) * of.StrideOf(letters[k]);
      rest /= of.SizeOf(letters[k]);
    }
    places[i] = static_cast<int32_t>(place);
  }
  return places;
}

EinsumPlaces PlacesOfAll(const Operand& x, const Operand& kernel, const Operand& y) {
  std::string shared, rows, columns, summed;
  for (const char c : x.letters) {
    const bool in_kernel = absl::StrContains(kernel.letters, c), in_y = absl::StrContains(y.letters, c);
    (in_kernel && in_y ? shared : in_kernel ? summed : rows).push_back(c);
  }
  for (const char c : kernel.letters) {
    if (!absl::StrContains(x.letters, c)) columns.push_back(c);
  }
  EinsumPlaces p;
  p.shared = Count(x, shared);
  p.rows = Count(x, rows);
  p.summed = Count(x, summed);
  p.columns = Count(kernel, columns);
  p.x = PlacesOf(x, shared + rows + summed);
  p.kernel = PlacesOf(kernel, shared + summed + columns);
  p.y = PlacesOf(y, shared + rows + columns);
  return p;
}

}  // namespace

EinsumPlaces EinsumPlacesOfTwo(const Node& node, const Shape& x, const Shape& kernel) {
  Shape output;
  const absl::StatusOr<EinsumEquation> e = ParseEinsumOfTwo(node.layer.einsum().equation(), x, kernel, &output);
  CAIRN_CHECK(e.ok(), "checked when the graph was built");
  return PlacesOfAll({e->x, x}, {e->kernel, kernel}, {e->y, output});
}

EinsumPlaces EinsumPlacesOf(const Node& node, const Shape& input) {
  const v1::EinsumDense& dense = node.layer.einsum_dense();
  const absl::StatusOr<EinsumEquation> e = ParseEinsum(dense.equation(), input.size());
  CAIRN_CHECK(e.ok(), "checked when the graph was built");
  const Operand x{e->x, input}, y{e->y, node.output};
  Operand kernel{e->kernel, {}};
  for (const char c : e->kernel) kernel.shape.push_back(absl::StrContains(e->x, c) ? x.SizeOf(c) : y.SizeOf(c));
  EinsumPlaces p = PlacesOfAll(x, kernel, y);
  if (dense.bias_axes().empty()) return p;
  // The axes of the output from the first one along which the bias differs; others of them have size 1 in it.
  p.bias.resize(static_cast<size_t>(NumElements(node.output)));
  for (size_t i = 0; i < p.bias.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), place = 0, stride = 1;
    for (size_t axis = e->y.size(); axis-- > 0;) {
      if (absl::StrContains(dense.bias_axes(), e->y[axis])) {
        place += rest % node.output[axis] * stride;
        stride *= node.output[axis];
      }
      rest /= node.output[axis];
    }
    p.bias[i] = static_cast<int32_t>(place);
  }
  return p;
}

}  // namespace cairn
