// Goal: decoded examples are returned as they were, from memory, from the file or decoded again; each is decoded once
// if there is room; a folder that cannot be written and a full disk cost nothing but decoding; the file leaves nothing
// behind.
#include "common/data/decoded_table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <numeric>
#include <thread>

#include "tests/unit/data/data_files.h"

namespace cairn {
namespace {

constexpr int64_t kSize = 1024;  // numbers of an example

// Number j of example i is (i + j) mod 251, its label i.
class CountingSource : public ExampleSource {
 public:
  CountingSource(int64_t size, Element element, std::vector<std::atomic<int>>* decoded)
      : size_(size), element_(element), decoded_(decoded) {}
  int64_t size() const override { return size_; }
  float Label(int64_t index) const override { return static_cast<float>(index); }
  absl::Status Decode(int64_t index, void* out) const override {
    ++(*decoded_)[index];
    if (index == 13) return absl::DataLossError("example 13 is broken");
    for (int64_t j = 0; j < kSize; ++j) {
      const int64_t value = (index + j) % 251;
      if (element_ == Element::kByte) static_cast<uint8_t*>(out)[j] = static_cast<uint8_t>(value);
      if (element_ == Element::kFloat) static_cast<float*>(out)[j] = static_cast<float>(value);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const Element element_;
  std::vector<std::atomic<int>>* const decoded_;
};

struct Fixture {
  Fixture(int64_t size, Element element, std::shared_ptr<CacheRoom> cache)
      : decoded(size),
        room(std::move(cache)),
        table(std::make_unique<CountingSource>(size, element, &decoded), kSize, element, room) {}

  void ReadAll() {
    std::vector<float> example(kSize);
    float label = -1;
    for (int64_t i = 0; i < table.size(); ++i) {
      if (i == 13) {
        EXPECT_EQ(table.Read(i, example.data(), &label), absl::DataLossError("example 13 is broken"));
        continue;
      }
      std::fill(example.begin(), example.end(), -1.0f);
      ASSERT_TRUE(table.Read(i, example.data(), &label).ok());
      EXPECT_EQ(label, i);
      for (int64_t j = 0; j < kSize; ++j) ASSERT_EQ(example[j], (i + j) % 251) << i;
    }
  }
  void ReadAllBytes() {
    std::vector<uint8_t> example(kSize);
    float label = -1;
    for (int64_t i = 0; i < table.size(); ++i) {
      const absl::Status read = table.ReadBytes(i, example.data(), &label);
      ASSERT_EQ(read.ok(), i != 13) << read;
      if (!read.ok()) continue;
      EXPECT_EQ(label, i);
      for (int64_t j = 0; j < kSize; ++j) ASSERT_EQ(example[j], (i + j) % 251) << i;
    }
  }
  int Decoded() const { return std::accumulate(decoded.begin(), decoded.end(), 0); }

  std::vector<std::atomic<int>> decoded;
  std::shared_ptr<CacheRoom> room;
  DecodedTable table;
};

TEST(DecodedTable, KeepsWhatFitsIntoMemory) {
  Fixture f(10, Element::kByte, std::make_shared<CacheRoom>(4 * kSize + 100, ""));
  for (int pass = 0; pass < 3; ++pass) f.ReadAll();
  EXPECT_EQ(f.Decoded(), 10 + 6 + 6);
  EXPECT_EQ(f.room->memory_left(), 100);
  EXPECT_FALSE(f.table.in_memory());
}

TEST(DecodedTable, TheFileTakesTheRest) {
  for (const Element element : {Element::kByte, Element::kFloat}) {
    TempFolder dir;
    Fixture f(40, element, std::make_shared<CacheRoom>(16 * kSize, dir / "made/as/needed"));
    for (int pass = 0; pass < 3; ++pass) f.ReadAll();
    EXPECT_EQ(f.Decoded(), 40 + 2) << "once, but for the broken one";
    EXPECT_TRUE(std::filesystem::is_empty(dir / "made/as/needed"))
        << "the file has no name, so that a crash leaves nothing behind";
  }
}

// From the source, from memory and from the file; what one way of reading kept, the other finds.
TEST(DecodedTable, BytesAreReadAsBytes) {
  TempFolder dir;
  Fixture f(20, Element::kByte, std::make_shared<CacheRoom>(8 * kSize, dir.path()));
  EXPECT_EQ(f.table.element(), Element::kByte);
  for (int pass = 0; pass < 2; ++pass) f.ReadAllBytes();
  f.ReadAll();
  EXPECT_EQ(f.Decoded(), 20 + 2) << "once, but for the broken one";
}

TEST(DecodedTable, ManyThreads) {
  TempFolder dir;
  Fixture f(60, Element::kByte, std::make_shared<CacheRoom>(10 * kSize, dir.path()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int pass = 0; pass < 5; ++pass) f.ReadAll();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(f.room->memory_left(), 0);
  const int before = f.Decoded();
  f.ReadAll();
  EXPECT_EQ(f.Decoded(), before + 1) << "the broken one";
}

TEST(DecodedTable, AFolderThatCannotBeMade) {
  TempFolder dir;
  WriteFile(dir / "file", "no folder");
  auto room = std::make_shared<CacheRoom>(0, dir / "file/cache");
  EXPECT_EQ(room->file(), nullptr);
  EXPECT_EQ(SpillFile::Create(dir / "file/cache").status(),
            absl::UnavailableError("data.cache_dir: " + dir / "file" + ": cannot create the folder: Not a directory"));
  Fixture f(5, Element::kByte, room);
  for (int pass = 0; pass < 2; ++pass) f.ReadAll();
  EXPECT_EQ(f.Decoded(), 10);
}

// A limit on the size of files stands for a full disk: a write stops in the middle.
TEST(DecodedTable, AFullDisk) {
  TempFolder dir;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  Fixture f(12, Element::kByte, std::make_shared<CacheRoom>(0, dir.path()));
  rlimit small = before;
  small.rlim_cur = 5 * kSize + 17;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int pass = 0; pass < 3; ++pass) f.ReadAll();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(f.Decoded(), 12 + 7 + 7) << "five are in the file";
}

// The file is checked: here every byte of it is altered.
TEST(DecodedTable, AnAlteredFileIsNotBelieved) {
  TempFolder dir;
  auto room = std::make_shared<CacheRoom>(0, dir.path());
  Fixture f(6, Element::kByte, room);
  f.ReadAll();
  EXPECT_EQ(f.Decoded(), 6);
  bool altered = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (!target.starts_with(dir.path())) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(6 * kSize, 'x');
    altered = file.good();
  }
  ASSERT_TRUE(altered);
  f.ReadAll();
  EXPECT_EQ(f.Decoded(), 12);
}

TEST(CacheRoom, TakesNoMoreThanThereIs) {
  CacheRoom room(100, "");
  EXPECT_TRUE(room.TakeMemory(60));
  EXPECT_FALSE(room.TakeMemory(60));
  EXPECT_TRUE(room.TakeMemory(40));
  EXPECT_FALSE(room.TakeMemory(1));
  room.ReturnMemory(40);
  EXPECT_TRUE(room.TakeMemory(40));
  v1::Data data;
  data.set_cache_mib(-1);
  EXPECT_EQ(CacheRoom::Make(data).status(),
            absl::InvalidArgumentError("data.cache_mib: negative; use 0 for the default, or 1 and more"));
}

}  // namespace
}  // namespace cairn
