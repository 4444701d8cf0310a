// MaximaOfWindows and MaximaBackward have the bits of oneDNN's max pooling.
#include "worker/backend/onednn/max_windows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <dnnl.hpp>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t height, width, channels, window_height, window_width, row_step, column_step;
};

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return absl::StrCat(c.height, "x", c.width, "x", c.channels, "_windows_", c.window_height, "x", c.window_width,
                      "_every_", c.row_step, "x", c.column_step);
}

// Few different numbers, so that maxima are found at several places of a window.
std::vector<float> Numbers(int64_t count, std::mt19937* random) {
  const float some[] = {0, 0, 0, 1, 2, -1, -2, 0.5f, -0.0f, kNan, -kInfinity, kInfinity, -3e38f};
  std::vector<float> numbers(count);
  for (float& x : numbers) x = some[(*random)() % std::size(some)];
  return numbers;
}

memory MemoryOf(const dnnl::engine& engine, const memory::dims& dims, std::vector<float>* numbers) {
  return memory({dims, memory::data_type::f32, memory::format_tag::nhwc}, engine, numbers->data());
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& wanted) {
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &wanted[i], sizeof(float)), 0) << i << ": " << got[i] << ", not " << wanted[i];
  }
}

class MaxWindows : public testing::TestWithParam<Case> {};

TEST_P(MaxWindows, HaveTheBitsOfOneDnn) {
  const Case& c = GetParam();
  const int64_t rows = (c.height - c.window_height) / c.row_step + 1;
  const int64_t columns = (c.width - c.window_width) / c.column_step + 1;
  const WindowGrid grid{.height = c.height,
                        .width = c.width,
                        .channels = c.channels,
                        .rows = rows,
                        .columns = columns,
                        .window_height = c.window_height,
                        .window_width = c.window_width,
                        .row_step = c.row_step,
                        .column_step = c.column_step};
  std::mt19937 random(7);
  std::vector<float> x = Numbers(grid.image_numbers(), &random), dy = Numbers(grid.window_numbers(), &random);
  std::vector<float> wanted_y(dy.size()), wanted_dx(x.size());

  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory src = MemoryOf(engine, {1, c.channels, c.height, c.width}, &x);
  const memory dst = MemoryOf(engine, {1, c.channels, rows, columns}, &wanted_y);
  const memory diff_src = MemoryOf(engine, {1, c.channels, c.height, c.width}, &wanted_dx);
  const memory diff_dst = MemoryOf(engine, {1, c.channels, rows, columns}, &dy);
  const memory::dims strides{c.row_step, c.column_step}, window{c.window_height, c.window_width}, none{0, 0};
  const dnnl::pooling_forward::primitive_desc forward({dnnl::prop_kind::forward_training, dnnl::algorithm::pooling_max,
                                                       src.get_desc(), dst.get_desc(), strides, window, none, none},
                                                      engine);
  const memory workspace(forward.workspace_desc(), engine);
  dnnl::pooling_forward(forward).execute(stream,
                                         {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}, {DNNL_ARG_WORKSPACE, workspace}});
  const dnnl::pooling_backward::primitive_desc backward(
      {dnnl::algorithm::pooling_max, diff_src.get_desc(), diff_dst.get_desc(), strides, window, none, none}, engine,
      forward);
  dnnl::pooling_backward(backward).execute(
      stream, {{DNNL_ARG_DIFF_SRC, diff_src}, {DNNL_ARG_DIFF_DST, diff_dst}, {DNNL_ARG_WORKSPACE, workspace}});
  stream.wait();

  std::vector<float> y(dy.size(), 9), dx(x.size(), 9), without_places(dy.size(), 9);
  std::vector<uint8_t> places(dy.size(), 255);
  MaximaOfWindows(grid, x.data(), y.data(), places.data());
  MaximaBackward(grid, dy.data(), places.data(), dx.data());
  MaximaOfWindows(grid, x.data(), without_places.data(), nullptr);
  ExpectSameBits(y, wanted_y);
  ExpectSameBits(without_places, wanted_y);
  ExpectSameBits(dx, wanted_dx);
}

INSTANTIATE_TEST_SUITE_P(Sizes, MaxWindows,
                         testing::Values(Case{28, 28, 8, 2, 2, 2, 2}, Case{14, 14, 16, 2, 2, 2, 2},
                                         Case{13, 11, 20, 2, 2, 2, 2}, Case{9, 12, 3, 3, 2, 3, 2},
                                         Case{1, 30, 17, 1, 4, 1, 4}, Case{10, 11, 8, 2, 2, 3, 4},
                                         Case{7, 5, 24, 7, 5, 1, 1}, Case{6, 5, 9, 3, 5, 3, 1},
                                         Case{16, 16, 8, 16, 16, 16, 16}, Case{1, 1, 8, 1, 1, 1, 1}),
                         NameOf);

}  // namespace
}  // namespace cairn::onednn
