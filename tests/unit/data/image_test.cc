// Goal: image folders are listed, decoded, converted to grey or RGB and resized as described; the cache changes nothing
// but time; broken pictures and folders get an error that names them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/data/dataset.h"
#include "common/data/describe.h"
#include "common/data/middle_crop.h"
#include "common/data/picture.h"
#include "tests/unit/data/data_files.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

absl::StatusOr<std::shared_ptr<const Dataset>> OpenFolder(const std::string& path, const Shape& shape,
                                                          int cache_mib = 0) {
  v1::Data data;
  data.set_path(path);
  data.set_format(v1::Data::IMAGE_FOLDER);
  data.set_cache_mib(cache_mib);
  return OpenDataset(data, shape);
}

void WriteFolder(const TempFolder& dir) {
  WritePng(dir / "train/red/1.png", 8, 6, 3, Plain(8, 6, {255, 0, 0}));
  WritePng(dir / "train/red/0.PNG", 4, 4, 3, Plain(4, 4, {200, 0, 0}));
  WriteJpeg(dir / "train/blue/a.jpg", 16, 16, 3, Plain(16, 16, {0, 0, 250}));
  WriteFile(dir / "train/blue/notes.txt", "not a picture");
  WriteFile(dir / "train/blue/.hidden.png", "not a picture");
  WriteJpeg(dir / "test/red/b.jpeg", 5, 5, 1, Plain(5, 5, {120}));
}

TEST(ImageFolder, ClassesAndFilesAreSorted) {
  TempFolder dir;
  WriteFolder(dir);
  v1::Data data;
  data.set_path(dir.path());
  const auto dataset = OpenDataset(data, {3, 2, 3});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const v1::DataInfo& info = (*dataset)->info();
  EXPECT_EQ(info.format(), v1::Data::IMAGE_FOLDER);
  EXPECT_THAT(info.class_names(), ElementsAre("blue", "red"));
  EXPECT_THAT(info.example_shape(), ElementsAre(3, 2, 3));
  EXPECT_EQ(info.train_examples(), 3);
  EXPECT_EQ(info.validation_examples(), 0);
  EXPECT_EQ(info.test_examples(), 1);
  std::vector<float> example(18);
  float label;
  ASSERT_TRUE((*dataset)->Read(v1::TRAIN, 0, example.data(), &label).ok());
  EXPECT_EQ(label, 0);
  EXPECT_NEAR(example[2], 250, 3);  // JPEG is lossy
  ASSERT_TRUE((*dataset)->Read(v1::TRAIN, 1, example.data(), &label).ok());
  EXPECT_EQ(label, 1);
  for (int i = 0; i < 6; ++i)
    EXPECT_THAT(std::vector<float>(example.begin() + 3 * i, example.begin() + 3 * i + 3), ElementsAre(200, 0, 0));
  ASSERT_TRUE((*dataset)->Read(v1::TEST, 0, example.data(), &label).ok());
  EXPECT_EQ(label, 1);
  for (float v : example) EXPECT_NEAR(v, 120, 2);  // grey becomes three equal channels
}

// Whatever split they are in; also through what changes the examples on their way to the model.
TEST(ImageFolder, ExamplesAreNamedByTheirFiles) {
  TempFolder dir;
  WriteFolder(dir);
  v1::Data data;
  data.set_path(dir.path() + "/");
  data.set_validation_split(0.4f);
  data.set_image_height(6);
  data.set_image_width(6);
  auto dataset = OpenDataset(data, {3, 2, 3});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto cropped = AsModelInput(*dataset, data, {3, 2, 3});
  ASSERT_NE(cropped, *dataset);
  std::vector<std::string> names;
  for (const v1::Split split : {v1::TRAIN, v1::VALIDATION}) {
    for (int64_t i = 0; i < cropped->size(split); ++i) names.push_back(cropped->NameOf(split, i));
  }
  EXPECT_THAT(names, UnorderedElementsAre("train/blue/a.jpg", "train/red/0.PNG", "train/red/1.png"));
  EXPECT_EQ(cropped->NameOf(v1::TEST, 0), "test/red/b.jpeg");
}

TEST(ImageFolder, GreyModelsGetLuma) {
  TempFolder dir;
  WritePng(dir / "a/x.png", 4, 4, 3, Plain(4, 4, {100, 200, 50}));
  WriteJpeg(dir / "b/x.jpg", 8, 8, 3, Plain(8, 8, {100, 200, 50}));
  const auto dataset = OpenFolder(dir.path(), {2, 2, 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> example(4);
  float label;
  for (int64_t i : {0, 1}) {
    ASSERT_TRUE((*dataset)->Read(v1::TRAIN, i, example.data(), &label).ok());
    EXPECT_NEAR(example[3], 0.299 * 100 + 0.587 * 200 + 0.114 * 50, i == 0 ? 0.5 : 2);
  }
}

TEST(ImageFolder, WithoutSplitsAllIsTrainingData) {
  TempFolder dir;
  WritePng(dir / "a/x.png", 4, 4, 1, Plain(4, 4, {7}));
  WritePng(dir / "b/x.png", 4, 4, 4, Plain(4, 4, {1, 2, 3, 0}));  // transparent: the colours are taken
  const auto dataset = OpenFolder(dir.path(), {4, 4, 3});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 2);
  std::vector<float> example(48);
  float label;
  ASSERT_TRUE((*dataset)->Read(v1::TRAIN, 1, example.data(), &label).ok());
  EXPECT_THAT(std::vector<float>(example.begin(), example.begin() + 3), ElementsAre(1, 2, 3));
}

TEST(ImageFolder, TheCacheChangesNothing) {
  TempFolder dir;
  std::vector<uint8_t> noise(600 * 600 * 3);
  for (int p = 0; p < 4; ++p) {
    for (size_t i = 0; i < noise.size(); ++i)
      noise[i] = Philox({1, 2}, {static_cast<uint32_t>(i), uint32_t(p), 0, 0})[0];
    WritePng(dir / absl::StrCat("a/", p, ".png"), 600, 600, 3, noise);
  }
  const auto large = OpenFolder(dir.path(), {500, 500, 3}, 100);  // 750 KB each: all fit
  const auto small = OpenFolder(dir.path(), {500, 500, 3}, 1);    // one fits
  ASSERT_TRUE(large.ok() && small.ok());
  std::vector<float> first(750'000), again(750'000);
  float label;
  for (int64_t i : {0, 1, 2, 3, 0, 3}) {
    ASSERT_TRUE((*large)->Read(v1::TRAIN, i, first.data(), &label).ok());
    ASSERT_TRUE((*small)->Read(v1::TRAIN, i, again.data(), &label).ok());
    EXPECT_EQ(first, again) << i;
  }
  // A cached picture needs no file any more; one that did not fit does.
  std::filesystem::remove_all(dir / "a");
  EXPECT_TRUE((*large)->Read(v1::TRAIN, 3, again.data(), &label).ok());
  EXPECT_TRUE((*small)->Read(v1::TRAIN, 0, again.data(), &label).ok());
  EXPECT_EQ((*small)->Read(v1::TRAIN, 3, again.data(), &label).code(), absl::StatusCode::kNotFound);
}

TEST(ImageFolder, BadFoldersAreNamed) {
  TempFolder dir;
  const auto expect = [&](const Shape& shape, absl::StatusCode code, const std::string& part) {
    const absl::Status status = OpenFolder(dir.path(), shape).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  };
  const auto kNotFound = absl::StatusCode::kNotFound, kInvalid = absl::StatusCode::kInvalidArgument;
  expect({4, 4, 3}, kNotFound, "no class folders");
  std::filesystem::create_directories(dir / "test/a");
  expect({4, 4, 3}, kNotFound, "no train/");
  std::filesystem::create_directories(dir / "train/a");
  expect({4, 4, 3}, kNotFound, "train/a: holds no .jpg");
  WritePng(dir / "train/a/x.png", 4, 4, 1, Plain(4, 4, {7}));
  expect({4, 4, 3}, kNotFound, "test/a: holds no .jpg");
  WritePng(dir / "test/b/x.png", 4, 4, 1, Plain(4, 4, {7}));
  std::filesystem::remove(dir / "test/a");
  expect({4, 4, 3}, kInvalid, "\"b\" is not among the training split's classes");
  expect({4, 4, 2}, kInvalid, "2 channels");
  expect({}, kInvalid, "data.image_height");
  expect({16}, kInvalid, "data.image_height");
}

TEST(Picture, BrokenFilesAreNamed) {
  TempFolder dir;
  std::vector<uint8_t> noise(64 * 64 * 3);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<uint8_t>(i * i >> 3);
  WritePng(dir / "good.png", 64, 64, 3, noise);
  WriteJpeg(dir / "good.jpg", 64, 64, 3, noise);
  const std::string png = ReadFile(dir / "good.png"), jpg = ReadFile(dir / "good.jpg");
  ASSERT_TRUE(ReadPicture(dir / "good.png", 3).ok());
  ASSERT_TRUE(ReadPicture(dir / "good.jpg", 3).ok());
  std::string png_flipped = png, png_huge = png, jpg_huge = jpg;
  png_flipped[png.size() / 2] ^= 0x40;
  png_huge.replace(16, 8, std::string("\x7f\xff\xff\xff\x7f\xff\xff\xff", 8));
  const size_t frame = jpg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpg_huge.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  struct Case {
    std::string name, bytes, part;
  };
  for (const Case& c : std::vector<Case>{{"cut.png", png.substr(0, png.size() / 2), "broken PNG"},
                                         {"header.png", png.substr(0, 20), "broken PNG"},
                                         {"flipped.png", png_flipped, "broken PNG"},
                                         {"huge.png", png_huge, ""},
                                         {"cut.jpg", jpg.substr(0, jpg.size() / 2), "broken JPEG"},
                                         {"header.jpg", jpg.substr(0, 40), "broken JPEG"},
                                         {"huge.jpg", jpg_huge, "65500x65500"},
                                         {"empty.jpg", "", "an empty file"},
                                         {"text.jpg", "I am a picture", "neither a JPEG nor a PNG"}}) {
    WriteFile(dir / c.name, c.bytes);
    const absl::Status status = ReadPicture(dir / c.name, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir / c.name));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.part));
  }
  EXPECT_EQ(ReadPicture(dir / "absent.png", 3).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadPicture(dir.path(), 3).status().code(), absl::StatusCode::kDataLoss);
}

// Any bytes: a result or an error, never a crash.
TEST(Picture, SpoiledBytesNeverCrash) {
  TempFolder dir;
  WritePng(dir / "good.png", 9, 9, 3, Plain(9, 9, {1, 2, 3}));
  WriteJpeg(dir / "good.jpg", 9, 9, 3, Plain(9, 9, {1, 2, 3}));
  const uint32_t seed = 20;
  for (const char* name : {"good.png", "good.jpg"}) {
    const std::string good = ReadFile(dir / name);
    for (uint32_t i = 0; i < 300; ++i) {
      const PhiloxBlock random = Philox({seed, 0}, {i, 0, 0, 0});
      std::string bad = good;
      bad[random[0] % bad.size()] ^= static_cast<char>(1 + random[1] % 255);
      if (random[2] % 4 == 0) bad.resize(random[3] % bad.size());
      WriteFile(dir / "bad", bad);
      const auto picture = ReadPicture(dir / "bad", 3);
      if (picture.ok()) {
        EXPECT_EQ(picture->pixels.size(), static_cast<size_t>(picture->height * picture->width * 3)) << "seed " << seed;
      }
    }
  }
}

// tf.image.resize written out plainly, in double.
uint8_t NaivePixel(const Picture& in, int64_t height, int64_t width, int64_t y, int64_t x, int64_t c) {
  const auto at = [&](double v, int64_t n, double* share) {
    *share = v - std::floor(v);
    return std::pair<int64_t, int64_t>(std::clamp<int64_t>(std::floor(v), 0, n - 1),
                                       std::clamp<int64_t>(std::floor(v) + 1, 0, n - 1));
  };
  double fy, fx;
  const auto [y0, y1] = at((y + 0.5) * in.height / height - 0.5, in.height, &fy);
  const auto [x0, x1] = at((x + 0.5) * in.width / width - 0.5, in.width, &fx);
  const auto p = [&](int64_t yy, int64_t xx) -> double { return in.pixels[(yy * in.width + xx) * in.channels + c]; };
  const double v = (p(y0, x0) * (1 - fx) + p(y0, x1) * fx) * (1 - fy) + (p(y1, x0) * (1 - fx) + p(y1, x1) * fx) * fy;
  return static_cast<uint8_t>(std::floor(v + 0.5));
}

TEST(Picture, ResizeIsBilinearWithHalfPixelCenters) {
  Picture in{7, 5, 3, {}};
  for (int i = 0; i < 7 * 5 * 3; ++i) in.pixels.push_back(static_cast<uint8_t>(i * 37));
  for (auto [height, width] :
       std::vector<std::pair<int64_t, int64_t>>{{7, 5}, {14, 10}, {3, 2}, {1, 1}, {5, 11}, {28, 28}}) {
    std::vector<uint8_t> out(height * width * 3);
    ResizePicture(in, height, width, absl::MakeSpan(out));
    for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
      const int naive = NaivePixel(in, height, width, i / 3 / width, i / 3 % width, i % 3);
      EXPECT_NEAR(out[i], naive, 1) << height << "x" << width << " at " << i;  // 1: float against double at a tie
    }
  }
  // The example of TensorFlow's rule: two pixels to four.
  const Picture two{1, 2, 1, {0, 100}};
  std::vector<uint8_t> four(4);
  ResizePicture(two, 1, 4, absl::MakeSpan(four));
  EXPECT_THAT(four, ElementsAre(0, 25, 75, 100));
}

TEST(Describe, PicturesNeedNoSize) {
  TempFolder dir;
  WriteFolder(dir);
  v1::Data data;
  data.set_path(dir.path());
  const auto summary = SummarizeDataset(data);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->height_min, 4);
  EXPECT_EQ(summary->height_max, 16);
  EXPECT_EQ(summary->width_max, 16);
  EXPECT_THAT(summary->splits[0].class_examples, ElementsAre(1, 2));
  EXPECT_THAT(ToText(*summary), HasSubstr("height 4 to 16, width 4 to 16"));
}

}  // namespace
}  // namespace cairn
