// How fast training batches come: from memory, with each augmentation, and how long it takes to open a large data set.
//
//   bench_data augment                    images/s of one thread, 28x28x1 and 224x224x3, without and with each step
//   bench_data open PATH [SHAPE [ROOT]]   opens a data set: seconds, memory; reads all of it once: examples/s; SHAPE
//                                         as 224,224,3; ROOT as a daemon's --root: without it paths are not checked
//   bench_data make-folder DIR N          N small pictures in ten classes
//   bench_data make-records FILE N BYTES  N records of so many bytes each
#include <png.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/roots.h"
#include "common/data/augment.h"
#include "common/data/dataset.h"
#include "common/data/tf_example.h"
#include "google/protobuf/text_format.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;
double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double PeakMib() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Bytes become floats, as in a data set in memory; then the steps are applied.
double ImagesPerSecond(const std::string& steps, const Shape& shape) {
  v1::Data data;
  CAIRN_CHECK(google::protobuf::TextFormat::ParseFromString(steps, &data), "the steps");
  const auto augmenter = Augmenter::Make(data, shape, 1).value();
  const int64_t numbers = NumElements(shape);
  std::vector<uint8_t> bytes(static_cast<size_t>(numbers));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  std::vector<float> example(static_cast<size_t>(numbers));
  int64_t images = 0;
  const Clock::time_point start = Clock::now();
  do {
    for (int i = 0; i < 20; ++i, ++images) {
      for (int64_t j = 0; j < numbers; ++j) example[j] = bytes[j];
      if (augmenter != nullptr) augmenter->Apply(0, static_cast<uint64_t>(images), example.data());
    }
  } while (Since(start) < 0.5);
  return static_cast<double>(images) / Since(start);
}

int Augment() {
  const std::vector<std::pair<const char*, std::string>> rows = {
      {"none", ""},
      {"random_flip", "augmentation { random_flip {} }"},
      {"random_rotation", "augmentation { random_rotation { factor: 0.1 } }"},
      {"random_zoom", "augmentation { random_zoom { height_factor: 0.2 } }"},
      {"random_translation", "augmentation { random_translation { height_factor: 0.1 width_factor: 0.1 } }"},
      {"random_crop, padding", "augmentation { random_crop { height: 28 width: 28 padding: 4 } }"},
      {"random_brightness", "augmentation { random_brightness { factor: 0.2 } }"},
      {"random_contrast", "augmentation { random_contrast { factor: 0.2 } }"},
      {"cutout", "augmentation { cutout { size: 14 } }"},
      {"flip, rotation, zoom, contrast",
       "augmentation { random_flip {} } augmentation { random_rotation { factor: 0.1 } } augmentation { random_zoom { "
       "height_factor: 0.2 } } "
       "augmentation { random_contrast { factor: 0.2 } }"},
  };
  std::printf("%-32s %14s %14s\n", "images/s of one thread", "28x28x1", "224x224x3");
  for (const auto& [name, steps] : rows) {
    std::printf("%-32s %14.0f %14.0f\n", name, ImagesPerSecond(steps, {28, 28, 1}),
                ImagesPerSecond(steps, {224, 224, 3}));
    std::fflush(stdout);
  }
  return 0;
}

int Open(const std::string& path, const Shape& shape) {
  v1::Data data;
  data.set_path(path);
  data.set_cache_mib(64);
  const double before = PeakMib();
  Clock::time_point start = Clock::now();
  const auto dataset = OpenDataset(data, shape);
  if (!dataset.ok()) {
    std::fprintf(stderr, "%s\n", std::string(dataset.status().message()).c_str());
    return 1;
  }
  std::printf("opened: %.4f s, %.0f MiB more, %lld examples\n", Since(start), PeakMib() - before,
              static_cast<long long>((*dataset)->size(v1::TRAIN)));
  std::vector<float> example(static_cast<size_t>((*dataset)->example_size()));
  float label;
  start = Clock::now();
  const int64_t size = (*dataset)->size(v1::TRAIN);
  for (int64_t i = 0; i < size; ++i) {
    const absl::Status status = (*dataset)->Read(v1::TRAIN, i, example.data(), &label);
    CAIRN_CHECK(status.ok(), status.ToString());
  }
  std::printf("read: %.4f s, %.0f examples/s, %.0f MiB more in all\n", Since(start),
              static_cast<double>(size) / Since(start), PeakMib() - before);
  return 0;
}

void Use(const std::string& text) {
  const absl::StatusOr<Root> root = ParseRoot(text);
  const absl::Status status = root.ok() ? UseRoots({*root}) : root.status();
  CAIRN_CHECK(status.ok(), status.ToString());
}

int MakeFolder(const std::string& dir, int64_t count) {
  std::vector<uint8_t> pixels(32 * 32 * 3);
  for (int64_t i = 0; i < count; ++i) {
    const std::string folder = dir + "/class" + std::to_string(i % 10);
    if (i < 10) std::filesystem::create_directories(folder);
    for (size_t j = 0; j < pixels.size(); ++j) pixels[j] = static_cast<uint8_t>(i + j / 64);
    png_image image = {};
    image.version = PNG_IMAGE_VERSION;
    image.width = image.height = 32;
    image.format = PNG_FORMAT_RGB;
    CAIRN_CHECK(png_image_write_to_file(&image, (folder + "/" + std::to_string(i) + ".png").c_str(), 0, pixels.data(),
                                        0, nullptr),
                "PNG");
  }
  return 0;
}

int MakeRecords(const std::string& path, int64_t count, int64_t bytes) {
  std::ofstream file(path, std::ios::binary);
  std::string pixels(static_cast<size_t>(bytes), '\0'), frame;
  for (int64_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < pixels.size(); j += 61) pixels[j] = static_cast<char>(i + static_cast<int64_t>(j));
    frame.clear();
    AppendRecord(WriteExample({{.name = "image_raw", .kind = FeatureKind::kBytes, .bytes = pixels},
                               {.name = "label", .kind = FeatureKind::kInts, .ints = {i % 10}}}),
                 &frame);
    file << frame;
  }
  return file.good() ? 0 : 1;
}

int64_t Number(const char* text) {
  int64_t number = 0;
  CAIRN_CHECK(absl::SimpleAtoi(text, &number) && number > 0, "a number above 0");
  return number;
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "augment") return Augment();
  if (what == "open" && argc > 2) {
    Shape shape;
    if (argc > 3) {
      for (const auto part : absl::StrSplit(argv[3], ',')) shape.push_back(Number(std::string(part).c_str()));
    }
    if (argc > 4) Use(argv[4]);
    return Open(argv[2], shape);
  }
  if (what == "make-folder" && argc > 3) return MakeFolder(argv[2], Number(argv[3]));
  if (what == "make-records" && argc > 4) return MakeRecords(argv[2], Number(argv[3]), Number(argv[4]));
  std::fprintf(stderr,
               "bench_data augment | open PATH [SHAPE [ROOT]] | make-folder DIR N | make-records FILE N BYTES\n");
  return 2;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
