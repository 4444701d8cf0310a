// Goal: the GPU's kernels for layers that move numbers or choose among them, and for activations of rows, compute what
// the CPU's own code says (worker/backend/tensor_moves.h, worker/backend/sparsemax.h): in every type, with few and with
// many numbers in a row, equal ones and such as are none; with the same bits in any order of blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph.h"
#include "tests/unit/backend/kernels_axes.h"
#include "tests/unit/backend/kernels_testing.h"
#include "tests/unit/model/model_text.h"
#include "worker/backend/cudnn/kernels/moves.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/sparsemax.h"
#include "worker/backend/tensor_function.h"

namespace cairn::cudnn::kernels {
namespace {

class MovesOf : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, MovesOf, testing::ValuesIn(kAllTypes), TypeName);

// What the CPU computes: a layer on one input.
struct OnCpu {
  std::vector<double> y, dx;

  OnCpu(const std::string& shape, const std::string& layer, int64_t examples, const std::vector<double>& x,
        const std::vector<double>& dy) {
    const Graph graph =
        Graph::Build(FromText<v1::Model>("layers { input { shape: " + shape + " } } layers { " + layer + " }")).value();
    const std::unique_ptr<TensorFunction<double>> function =
        MakeTensorFunction<double>(graph, graph.output(), examples);
    y.resize(static_cast<size_t>(examples * NumElements(graph.output().output)));
    dx.assign(x.size(), 0.0);
    const double* const inputs[] = {x.data()};
    function->Forward(inputs, y.data());
    std::vector<double> given = dy;
    given.resize(y.size());
    function->Backward(inputs, y.data(), given.data(), 0, dx.data());
  }
};

// ---- TopK ----

// Launches TopK and its way back, and compares both with the CPU.
void ExpectTop(const Tensor& x, const Largest& t, DType type) {
  const int64_t n = t.rows * t.k;
  const Tensor dy(Coarse(n, 5), type);  // sums of two are exact
  for (const bool indices : {false, true}) {
    Largest of = t;
    of.indices = indices;
    const OnCpu cpu(absl::StrCat(t.size), absl::StrCat("top_k { k: ", t.k, indices ? " indices: true }" : " }"), t.rows,
                    x.exact(), dy.exact());
    Memory places(static_cast<size_t>(n) * 4);
    const std::vector<float> y = Launched(n, DType::kFloat32, [&](void* out) {
      return TopK(nullptr, of, x.data(), type, out, DType::kFloat32, static_cast<int32_t*>(places.data()));
    });
    for (size_t i = 0; i < y.size(); ++i) {
      if (!std::isnan(cpu.y[i]) || !std::isnan(y[i])) {
        EXPECT_EQ(y[i], cpu.y[i]) << i << " of " << t.rows << " rows of " << t.size;
      }
    }
    if (indices) continue;
    const std::vector<float> before = Coarse(t.rows * t.size, 6);
    ExpectNear(Launched(
                   t.rows * t.size, type,
                   [&](void* dx) {
                     return TopKBackward(nullptr, t, static_cast<const int32_t*>(places.data()), dy.data(), type, dx,
                                         type);
                   },
                   before),
               Sum(cpu.dx, {before.begin(), before.end()}), 0, "top backward");
  }
}

TEST_P(MovesOf, TopK) {
  for (const auto& [rows, size, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                      {7, 5, 5},
                                      {3, 33, 4},
                                      {2, 512, 9},
                                      {3, 513, 20},
                                      {1, 1000, 2}}) {
    ExpectTop(Tensor(Random(rows * size, 3), type()), {rows, size, k, false}, type());
    ExpectTop(Tensor(Coarse(rows * size, 4), type()), {rows, size, k, false}, type());  // many are equal
  }
}

// What is no number comes first, then infinity; zeros of both signs are equal.
TEST_P(MovesOf, TopKOfWhatIsNoNumber) {
  const float none = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> row = {-infinity, 0, none, -0.0f, 2, infinity, none, 0, -infinity, 2, -3};
  for (const int64_t k : {1, 4, 11}) ExpectTop(Tensor(row, type()), {1, 11, k, false}, type());
}

// ---- Pad, Tile, Take ----

struct Places {
  Moves moves;
  Readers readers;
  std::vector<int32_t> places, read_by;

  // axes: for each axis of `from` the places that stand along it in the output; none: it stays.
  Places(const Dims& from, const std::vector<std::vector<int32_t>>& axes) {
    moves.from = moves.to = from;
    for (size_t i = 0; i < axes.size(); ++i) {
      const std::vector<int32_t>& own = axes[i];
      const size_t d = static_cast<size_t>(kAxesMax) - axes.size() + i;
      if (own.empty()) continue;
      moves.to.of[d] = static_cast<int64_t>(own.size());
      moves.begin[d] = static_cast<int64_t>(places.size());
      places.insert(places.end(), own.begin(), own.end());
      const size_t first = read_by.size();
      readers.begin[d] = static_cast<int64_t>(first);
      const auto size = static_cast<size_t>(from.of[d]);
      read_by.resize(first + size + 1);
      for (size_t place = 0; place <= size; ++place) {
        read_by[first + place] = static_cast<int32_t>(read_by.size());
        for (size_t to = 0; to < own.size() && place < size; ++to) {
          if (own[to] == static_cast<int32_t>(place)) read_by.push_back(static_cast<int32_t>(to));
        }
      }
    }
  }
};

TEST_P(MovesOf, PlacesOfAxes) {
  const std::vector<std::vector<int32_t>> several[] = {
      {{}, {1, 0, 1, 2}, {}}, {{}, {-1, 0, 1, 2, -1}, {3, 2, 1, 0, 1}}, {{0, 1, 0, 1}, {}, {2, 2, 2}}, {{}, {}, {}}};
  for (const std::vector<std::vector<int32_t>>& axes : several) {
    const Dims from = DimsOf({2, 3, 4});
    const Places p(from, axes);
    const Tensor x(Random(from.Count(), 1), type()), dy(Coarse(p.moves.to.Count(), 2), type());
    std::vector<double> y(static_cast<size_t>(p.moves.to.Count())), dx(static_cast<size_t>(from.Count()), 0.0);
    for (size_t i = 0; i < y.size(); ++i) {
      int64_t rest = static_cast<int64_t>(i), place = 0, stride = 1;
      bool there = true;
      for (size_t d = kAxesMax; d-- > 0;) {
        int64_t along = rest % p.moves.to.of[d];
        rest /= p.moves.to.of[d];
        if (p.moves.begin[d] >= 0) along = p.places[static_cast<size_t>(p.moves.begin[d] + along)];
        there = there && along >= 0;
        place += along * stride;
        stride *= from.of[d];
      }
      y[i] = there ? x.exact()[static_cast<size_t>(place)] : -0.5;
      if (there) dx[static_cast<size_t>(place)] += dy.exact()[i];
    }
    Memory places(p.places.size() * 4 + 4), read_by(p.read_by.size() * 4 + 4);
    places.Put(p.places.data(), p.places.size() * 4);
    read_by.Put(p.read_by.data(), p.read_by.size() * 4);
    Moves moves = p.moves;
    moves.places = static_cast<const int32_t*>(places.data());
    Readers readers = p.readers;
    readers.readers = static_cast<const int32_t*>(read_by.data());
    ExpectNear(Launched(moves.to.Count(), type(),
                        [&](void* out) { return Move(nullptr, moves, -0.5f, x.data(), out, type()); }),
               y, 0, "move");
    ExpectBoth(dx, type(), 0, "move backward",
               [&](void* out, bool add) { return MoveBackward(nullptr, moves, readers, dy.data(), out, type(), add); });
  }
}

TEST_P(MovesOf, OneHot) {
  const std::vector<float> x = {0, 1, 2.9f, 3, -0.5f, -1, std::numeric_limits<float>::quiet_NaN(), 1};
  const Tensor numbers(x, type());
  for (const int64_t inner : {1, 4}) {
    const Classes c{8 / inner, 3, inner};
    const OnCpu cpu(inner == 1 ? "1" : "[1, 4]",
                    absl::StrCat("one_hot { num_classes: 3 axis: ", inner == 1 ? 2 : 1, " }"), 8 / inner,
                    numbers.exact(), {});
    ExpectNear(Launched(24, type(), [&](void* y) { return OneHot(nullptr, c, numbers.data(), type(), y, type()); }),
               cpu.y, 0, "one hot");
  }
}

// ---- activations of rows ----

TEST_P(MovesOf, Sparsemax) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{5, 1}, {9, 4}, {3, 512}, {2, 700}}) {
    for (const float range : {0.1f, 3.0f}) {
      const int64_t n = rows * columns;
      const Tensor x(columns == 4 ? Coarse(n, 8) : Random(n, 8, -range, range), type()), dy(Random(n, 9), type());
      std::vector<double> y(static_cast<size_t>(n)), dx(static_cast<size_t>(n));
      for (int64_t r = 0; r < rows; ++r)
        cairn::Sparsemax(x.exact().data() + r * columns, columns, y.data() + r * columns);
      ExpectNear(Launched(n, type(),
                          [&, rows = rows, columns = columns](void* out) {
                            return Sparsemax(nullptr, rows, columns, x.data(), out, type());
                          }),
                 y, precision(), "sparsemax");
      const Tensor result(Floats(y), type());
      for (int64_t r = 0; r < rows; ++r) {
        cairn::SparsemaxBackward(result.exact().data() + r * columns, dy.exact().data() + r * columns, columns,
                                 dx.data() + r * columns);
      }
      ExpectBoth(dx, type(), precision(), "sparsemax backward",
                 [&, rows = rows, columns = columns](void* out, bool add) {
                   return SparsemaxBackward(nullptr, rows, columns, result.data(), dy.data(), out, type(), add);
                 });
    }
  }
}

TEST_P(MovesOf, GatedRows) {
  for (const auto& [rows, half] : {std::pair<int64_t, int64_t>{1, 1}, {6, 7}, {3, 300}}) {
    const Tensor x(Random(2 * rows * half, 1, -4, 4), type()), dy(Random(rows * half, 2), type());
    const OnCpu cpu(absl::StrCat(2 * half), "activation { activation: GLU }", rows, x.exact(), dy.exact());
    ExpectNear(Launched(rows * half, type(),
                        [&, rows = rows, half = half](void* y) {
                          return GatedRows(nullptr, rows, half, x.data(), y, type());
                        }),
               cpu.y, precision(), "gate");
    ExpectBoth(cpu.dx, type(), precision(), "gate backward", [&, rows = rows, half = half](void* dx, bool add) {
      return GatedRowsBackward(nullptr, rows, half, x.data(), dy.data(), dx, type(), add);
    });
  }
}

TEST_P(MovesOf, ScoresOfUnseenKeysAreHidden) {
  for (const auto& [causal, window] : {std::pair<bool, int64_t>{false, 1}, {false, 3}, {true, 2}, {true, 9}}) {
    const SeenKeys seen{2 * 3 * 5, 5, 4, causal, window};  // of two examples with three heads
    const std::vector<float> before = Coarse(seen.rows * seen.keys, 3);
    const std::vector<float> after = Launched(
        seen.rows * seen.keys, type(), [&](void* scores) { return HideScores(nullptr, seen, scores, type()); }, before);
    for (int64_t i = 0; i < seen.rows * seen.keys; ++i) {
      const int64_t query = i / seen.keys % seen.queries, key = i % seen.keys;
      const bool hidden = (causal && key > query) || std::abs(query - key) >= window;
      EXPECT_EQ(after[static_cast<size_t>(i)],
                hidden ? -std::numeric_limits<float>::infinity() : before[static_cast<size_t>(i)])
          << query << " " << key << " of window " << window;
    }
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
