#include "common/data/glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/random.h"
#include "common/base/words.h"
#include "common/data/gzip_file.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

struct Point {
  float x, y;
};

// One pen stroke in the unit square, y downwards: through its points, as a smooth curve (Catmull-Rom) or as straight
// lines.
struct Stroke {
  bool smooth;
  std::vector<Point> points;
};
using Outline = std::vector<Stroke>;

// Some digits have two variants.
const std::array<std::vector<Outline>, kGlyphClasses>& Outlines() {
  static const auto* outlines = new std::array<std::vector<Outline>, kGlyphClasses>{{
      {{{true,
         {{.5f, .05f},
          {.8f, .22f},
          {.85f, .5f},
          {.8f, .78f},
          {.5f, .95f},
          {.2f, .78f},
          {.15f, .5f},
          {.2f, .22f},
          {.5f, .05f}}}}},
      {{{false, {{.3f, .25f}, {.55f, .05f}, {.55f, .95f}}}},
       {{false, {{.32f, .22f}, {.52f, .05f}, {.52f, .94f}}}, {false, {{.28f, .94f}, {.78f, .94f}}}}},
      {{{true, {{.18f, .28f}, {.3f, .08f}, {.56f, .04f}, {.8f, .2f}, {.75f, .42f}, {.5f, .66f}, {.18f, .94f}}},
        {false, {{.18f, .94f}, {.85f, .94f}}}}},
      {{{true, {{.2f, .14f}, {.5f, .04f}, {.78f, .2f}, {.7f, .4f}, {.42f, .47f}}},
        {true, {{.42f, .47f}, {.75f, .56f}, {.83f, .75f}, {.6f, .94f}, {.3f, .94f}, {.15f, .82f}}}},
       {{false, {{.2f, .06f}, {.78f, .06f}, {.46f, .42f}}},
        {true, {{.46f, .42f}, {.76f, .54f}, {.82f, .76f}, {.58f, .95f}, {.28f, .93f}, {.15f, .8f}}}}},
      {{{false, {{.62f, .04f}, {.14f, .64f}, {.88f, .64f}}}, {false, {{.64f, .34f}, {.64f, .96f}}}},
       {{false, {{.24f, .06f}, {.2f, .55f}, {.84f, .55f}}}, {false, {{.74f, .06f}, {.72f, .96f}}}}},
      {{{false, {{.8f, .05f}, {.28f, .05f}, {.22f, .45f}}},
        {true, {{.22f, .45f}, {.5f, .37f}, {.8f, .52f}, {.82f, .75f}, {.58f, .95f}, {.3f, .93f}, {.15f, .82f}}}}},
      {{{true,
         {{.74f, .07f},
          {.44f, .16f},
          {.22f, .42f},
          {.17f, .7f},
          {.3f, .9f},
          {.55f, .95f},
          {.8f, .82f},
          {.8f, .62f},
          {.58f, .5f},
          {.32f, .56f},
          {.19f, .72f}}}}},
      {{{false, {{.14f, .06f}, {.86f, .06f}, {.4f, .95f}}}},
       {{false, {{.14f, .06f}, {.86f, .06f}, {.42f, .95f}}}, {false, {{.36f, .5f}, {.78f, .5f}}}}},
      {{{true, {{.5f, .04f}, {.76f, .15f}, {.74f, .34f}, {.5f, .47f}, {.26f, .34f}, {.24f, .15f}, {.5f, .04f}}},
        {true, {{.5f, .47f}, {.8f, .6f}, {.82f, .82f}, {.5f, .96f}, {.18f, .82f}, {.2f, .6f}, {.5f, .47f}}}}},
      {{{true,
         {{.81f, .28f},
          {.66f, .47f},
          {.4f, .5f},
          {.2f, .37f},
          {.2f, .17f},
          {.45f, .05f},
          {.7f, .1f},
          {.83f, .3f},
          {.78f, .6f},
          {.56f, .84f},
          {.26f, .93f}}}},
       {{true, {{.76f, .3f}, {.58f, .48f}, {.3f, .44f}, {.2f, .24f}, {.4f, .06f}, {.66f, .1f}, {.76f, .3f}}},
        {false, {{.76f, .2f}, {.72f, .95f}}}}},
  }};
  return *outlines;
}

// The random numbers of one picture, in the order in which they are drawn.
class Draws {
 public:
  Draws(std::array<uint32_t, 2> key, uint32_t split, uint32_t index) : key_(key), split_(split), index_(index) {}
  uint32_t Bits() {
    if (at_ == 4) {
      block_ = Philox(key_, {index_, split_, counter_++, 0});
      at_ = 0;
    }
    return block_[at_++];
  }
  float Uniform(float low, float high) { return low + (high - low) * ToUniform(Bits()); }

 private:
  const std::array<uint32_t, 2> key_;
  const uint32_t split_, index_;
  uint32_t counter_ = 0;
  PhiloxBlock block_{};
  size_t at_ = 4;
};

// Maps the unit square to the picture's pixels.
struct Affine {
  float xx, xy, yx, yy, x, y;
  Point operator()(Point p) const {
    const float u = p.x - 0.5f, v = p.y - 0.5f;
    return {xx * u + xy * v + x, yx * u + yy * v + y};
  }
};

Affine RandomAffine(Draws& draws) {
  // Rotates by 2 atan(t), up to 14 degrees. The formula is rational, so that the picture does not depend on a math
  // library.
  const float t = draws.Uniform(-0.12f, 0.12f);
  const float cos = (1 - t * t) / (1 + t * t), sin = 2 * t / (1 + t * t);
  const float height = draws.Uniform(17.0f, 22.0f), width = height * draws.Uniform(0.65f, 0.95f);
  const float shear = draws.Uniform(-0.25f, 0.25f);
  const float room = (kGlyphSide - height) * 0.3f;
  Affine a;
  a.xx = cos * width;
  a.xy = (-cos * shear - sin) * height;
  a.yx = sin * width;
  a.yy = (-sin * shear + cos) * height;
  a.x = (kGlyphSide - 1) * 0.5f + draws.Uniform(-room, room);
  a.y = (kGlyphSide - 1) * 0.5f + draws.Uniform(-room, room);
  return a;
}

// Distances from the pixels to the strokes, in pixels. Distances beyond kReach are not computed.
class Canvas {
 public:
  static constexpr float kReach = 4.0f;
  Canvas() { squares_.fill(kReach * kReach); }

  void Line(Point a, Point b) {
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float inverse = 1.0f / std::max(dx * dx + dy * dy, 1e-6f);
    const int left = Clamp(std::min(a.x, b.x) - kReach), right = Clamp(std::max(a.x, b.x) + kReach);
    const int top = Clamp(std::min(a.y, b.y) - kReach), bottom = Clamp(std::max(a.y, b.y) + kReach);
    for (int y = top; y <= bottom; ++y) {
      float* row = squares_.data() + y * kGlyphSide;
      const float v = static_cast<float>(y) - a.y;
      for (int x = left; x <= right; ++x) {
        const float u = static_cast<float>(x) - a.x;
        const float along = std::min(std::max((u * dx + v * dy) * inverse, 0.0f), 1.0f);
        const float ex = u - along * dx, ey = v - along * dy;
        row[x] = std::min(row[x], ex * ex + ey * ey);
      }
    }
  }

  // The ink of a pen: 1 within the radius, decreasing to 0 over `soft` pixels.
  float Ink(int pixel, float radius, float soft) const {
    const float distance = std::sqrt(squares_[pixel]);
    return std::min(std::max((radius - distance) / soft + 0.5f, 0.0f), 1.0f);
  }

 private:
  static int Clamp(float at) { return std::min(std::max(static_cast<int>(at), 0), kGlyphSide - 1); }
  std::array<float, kGlyphPixels> squares_;
};

Point CatmullRom(Point a, Point b, Point c, Point d, float t) {
  const auto mix = [t](float p, float q, float r, float s) {
    return 0.5f * (2 * q + (r - p) * t + (2 * p - 5 * q + 4 * r - s) * t * t + (3 * q - p - 3 * r + s) * t * t * t);
  };
  return {mix(a.x, b.x, c.x, d.x), mix(a.y, b.y, c.y, d.y)};
}

void DrawStroke(const Stroke& stroke, const Affine& affine, float shake, Draws& draws, Canvas* canvas) {
  constexpr int kPieces = 4;
  std::array<Point, 16> points;
  const size_t count = stroke.points.size();
  for (size_t i = 0; i < count; ++i) {
    const float x = draws.Uniform(-shake, shake), y = draws.Uniform(-shake, shake);
    points[i] = affine({stroke.points[i].x + x, stroke.points[i].y + y});
  }
  for (size_t i = 0; i + 1 < count; ++i) {
    if (!stroke.smooth) {
      canvas->Line(points[i], points[i + 1]);
      continue;
    }
    const Point before = points[i == 0 ? 0 : i - 1], behind = points[std::min(i + 2, count - 1)];
    Point from = points[i];
    for (int piece = 1; piece <= kPieces; ++piece) {
      const Point to = CatmullRom(before, points[i], points[i + 1], behind, static_cast<float>(piece) / kPieces);
      canvas->Line(from, to);
      from = to;
    }
  }
}

// Adds a short line that is not part of the digit to one picture in four.
void DrawClutter(Draws& draws, Canvas* canvas) {
  if (draws.Bits() % 4 != 0) return;
  const Point a = {draws.Uniform(0, kGlyphSide - 1), draws.Uniform(0, kGlyphSide - 1)};
  canvas->Line(a, {a.x + draws.Uniform(-4, 4), a.y + draws.Uniform(-4, 4)});
}

constexpr int64_t kChunk = 4096;  // pictures drawn per batch

absl::Status WriteHeader(GzipFile* file, std::vector<uint32_t> dims) {
  std::string header = {0, 0, 0x08, static_cast<char>(dims.size())};
  for (uint32_t d : dims) AppendBigEndian(d, 4, &header);
  return file->Write(header.data(), header.size());
}

void DrawChunk(uint64_t seed, uint32_t split, int64_t first, int64_t count, uint8_t* pixels, uint8_t* labels) {
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 16);
  std::vector<std::thread> pool;
  for (int64_t t = 0; t < threads; ++t) {
    pool.emplace_back([=] {
      for (int64_t i = count * t / threads; i < count * (t + 1) / threads; ++i) {
        const absl::Span<uint8_t> picture(pixels + i * kGlyphPixels, kGlyphPixels);
        labels[i] = static_cast<uint8_t>(DrawGlyph(seed, split, static_cast<uint32_t>(first + i), picture));
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
}

absl::Status WriteSplit(const std::string& dir, const char* prefix, uint32_t split, int64_t count, uint64_t seed) {
  GzipFile images(absl::StrFormat("%s/%s-images-idx3-ubyte.gz", dir, prefix), "wb1");
  GzipFile labels(absl::StrFormat("%s/%s-labels-idx1-ubyte.gz", dir, prefix), "wb1");
  const uint32_t n = static_cast<uint32_t>(count);
  CAIRN_RETURN_IF_ERROR(WriteHeader(&images, {n, kGlyphSide, kGlyphSide}));
  CAIRN_RETURN_IF_ERROR(WriteHeader(&labels, {n}));
  std::vector<uint8_t> pixels(std::min(count, kChunk) * kGlyphPixels), classes(std::min(count, kChunk));
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t part = std::min(kChunk, count - first);
    DrawChunk(seed, split, first, part, pixels.data(), classes.data());
    CAIRN_RETURN_IF_ERROR(images.Write(pixels.data(), part * kGlyphPixels));
    CAIRN_RETURN_IF_ERROR(labels.Write(classes.data(), part));
  }
  CAIRN_RETURN_IF_ERROR(images.Close());
  return labels.Close();
}

}  // namespace

int DrawGlyph(uint64_t seed, uint32_t split, uint32_t index, absl::Span<uint8_t> pixels) {
  Draws draws(StreamKey(seed, RandomStream::kGlyphs), split, index);
  const int digit = static_cast<int>(draws.Bits() % kGlyphClasses);
  const std::vector<Outline>& ways = Outlines()[digit];
  const Outline& outline = ways[draws.Bits() % ways.size()];
  const Affine affine = RandomAffine(draws);
  const float radius = draws.Uniform(0.8f, 1.7f), soft = draws.Uniform(0.8f, 1.8f),
              shake = draws.Uniform(0.01f, 0.035f);
  Canvas canvas;
  for (const Stroke& stroke : outline) DrawStroke(stroke, affine, shake, draws, &canvas);
  DrawClutter(draws, &canvas);
  const float paper = draws.Uniform(0, 25), ink = draws.Uniform(170, 255), noise = draws.Uniform(2, 16);
  for (int i = 0; i < kGlyphPixels; ++i) {
    const float clean = paper + (ink - paper) * canvas.Ink(i, radius, soft);
    pixels[i] = static_cast<uint8_t>(std::clamp(clean + draws.Uniform(-noise, noise) + 0.5f, 0.0f, 255.0f));
  }
  return digit;
}

absl::Status WriteGlyphs(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed) {
  for (int64_t count : {train_count, test_count}) {
    if (count < 1 || count > kGlyphsMax) {
      return absl::InvalidArgumentError(absl::StrFormat("count: %d is not in 1 to %d", count, kGlyphsMax));
    }
  }
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return absl::UnavailableError(absl::StrFormat("%s: cannot be made: %s", dir, error.message()));
  CAIRN_RETURN_IF_ERROR(WriteSplit(dir, "train", 0, train_count, seed));
  return WriteSplit(dir, "t10k", 1, test_count, seed);
}

}  // namespace cairn
