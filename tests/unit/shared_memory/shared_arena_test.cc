// Goal: an arena gives pages and takes them back, costs what is in use, and can be read by others and not written to;
// reading does no harm whatever its owner does, and makes no memory in the owner's name.
#include "common/shared_memory/shared_arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/tensor/buffer_pages.h"

namespace cairn {
namespace {

constexpr size_t kPage = 4096;

std::unique_ptr<SharedArena> MakeArena(size_t bytes) {
  auto arena = SharedArena::Create(bytes);
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

ArenaView ViewOf(const SharedArena& arena) {
  auto fd = arena.OpenReadOnly();
  EXPECT_TRUE(fd.ok()) << fd.status();
  auto view = ArenaView::Open(*std::move(fd), arena.size());
  EXPECT_TRUE(view.ok()) << view.status();
  return *std::move(view);
}

// A memfd with these seals.
FileDescriptor Memfd(size_t bytes, int seals, unsigned flags = 0) {
  FileDescriptor fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SharedArena, GivesPagesThatDoNotOverlapUntilThereAreNone) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr size_t kPages = 64;
  const auto arena = MakeArena(kPages * kPage);
  std::map<uint8_t*, size_t> taken;  // bytes by place
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0) {
      const size_t bytes = 1 + random() % (8 * kPage);
      auto* const p = static_cast<uint8_t*>(arena->Take(bytes));
      if (p == nullptr) {
        ++refused;
        continue;
      }
      ASSERT_EQ(std::count(p, p + bytes, 0), static_cast<std::ptrdiff_t>(bytes)) << "zeros";
      std::memset(p, 1, bytes);
      ASSERT_EQ(arena->OffsetOf(p, bytes).value() % kPage, 0u);
      const auto after = taken.lower_bound(p);
      const bool free_after = after == taken.end() || p + bytes <= after->first;
      const bool free_before = after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= p;
      ASSERT_TRUE(free_after && free_before);
      taken[p] = bytes;
    } else if (!taken.empty()) {
      const auto one = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      arena->Give(one->first, one->second);
      taken.erase(one);
    }
  }
  EXPECT_GT(refused, 10);
  for (const auto& [p, bytes] : taken) arena->Give(p, bytes);
  EXPECT_EQ(arena->bytes_used(), 0u);
  EXPECT_NE(arena->Take(kPages * kPage), nullptr) << "the gaps are joined";
  EXPECT_EQ(arena->Take(1), nullptr);
}

TEST(SharedArena, CostsWhatIsInUse) {
  const auto arena = MakeArena(size_t{1} << 30);
  EXPECT_EQ(arena->bytes_used(), 0u);
  void* const p = arena->Take(10 * kPage);
  EXPECT_EQ(arena->bytes_used(), 10 * kPage) << "it is there before it is used";
  std::memset(p, 1, 10 * kPage);
  EXPECT_EQ(arena->bytes_used(), 10 * kPage);
  arena->Discard(static_cast<uint8_t*>(p) + kPage, 4 * kPage);
  EXPECT_EQ(arena->bytes_used(), 6 * kPage);
  EXPECT_EQ(static_cast<uint8_t*>(p)[kPage], 0);
  EXPECT_EQ(static_cast<uint8_t*>(p)[9 * kPage], 1);
}

TEST(SharedArena, KnowsWhatLiesInIt) {
  const auto arena = MakeArena(4 * kPage);
  auto* const p = static_cast<uint8_t*>(arena->Take(kPage));
  EXPECT_EQ(arena->OffsetOf(p + 5, 10), 5u);
  EXPECT_EQ(arena->OffsetOf(p, 4 * kPage), 0u);
  EXPECT_EQ(arena->OffsetOf(p, 4 * kPage + 1), std::nullopt);
  EXPECT_EQ(arena->OffsetOf(p - 1, 1), std::nullopt);
  int elsewhere = 0;
  EXPECT_FALSE(arena->Contains(&elsewhere));
}

TEST(SharedArena, OthersOnlyRead) {
  const auto arena = MakeArena(4 * kPage);
  std::memcpy(arena->Take(kPage), "text", 5);
  auto fd = arena->OpenReadOnly();
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
  EXPECT_EQ(pwrite(fd->get(), "x", 1, 0), -1);
  EXPECT_NE(fallocate(fd->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
  EXPECT_NE(ftruncate(fd->get(), 0), 0);
  const ArenaView view = ViewOf(*arena);
  EXPECT_STREQ(reinterpret_cast<const char*>(view.Find(0, 5)->data()), "text");
}

TEST(ArenaView, OpensSealedMemoryOnly) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_TRUE(ArenaView::Open(Memfd(kPage, kSeals), kPage).ok());
  const auto refused = [](FileDescriptor fd) {
    return absl::IsInvalidArgument(ArenaView::Open(std::move(fd), kPage).status());
  };
  EXPECT_TRUE(refused(Memfd(kPage, F_SEAL_GROW | F_SEAL_SEAL))) << "it may shrink";
  EXPECT_TRUE(refused(Memfd(kPage + 1, kSeals))) << "too large";
  EXPECT_TRUE(refused(Memfd(0, kSeals)));
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_TRUE(refused(FileDescriptor(pipes[0])));
  close(pipes[1]);
  EXPECT_TRUE(refused(FileDescriptor(open("/proc/self/exe", O_RDONLY | O_CLOEXEC))));
  EXPECT_FALSE(ArenaView::Open(FileDescriptor(), kPage).ok());
}

// Pages that the owner never wrote to, or took away, are not made by who looks for them.
TEST(ArenaView, FindsWhatIsThereAndMakesNothing) {
  const auto arena = MakeArena(1000 * kPage);
  const ArenaView view = ViewOf(*arena);
  auto* const p = static_cast<uint8_t*>(arena->Take(600 * kPage));
  std::memset(p, 7, 600 * kPage);
  EXPECT_TRUE(view.Find(0, 600 * kPage).has_value());
  EXPECT_TRUE(view.Find(kPage - 1, 2).has_value());
  EXPECT_FALSE(view.Find(0, 600 * kPage + 1).has_value());
  EXPECT_FALSE(view.Find(900 * kPage + 3, 10).has_value());
  arena->Discard(p + 100 * kPage, kPage);
  EXPECT_FALSE(view.Find(50 * kPage, 51 * kPage).has_value());
  EXPECT_EQ(arena->bytes_used(), 599 * kPage);
}

// Of another user's memory the system says that all of it is there.
TEST(ArenaView, IsOfTheSameUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const auto arena = MakeArena(kPage);
  auto fd = arena->OpenReadOnly();
  ASSERT_TRUE(fd.ok()) << fd.status();
  ASSERT_EQ(fchown(fd->get(), 65534, 65534), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(ArenaView::Open(*std::move(fd), kPage).status()));
}

TEST(ArenaView, HasNoBytesBeyondItsEnd) {
  const auto arena = MakeArena(2 * kPage);
  const ArenaView view = ViewOf(*arena);
  EXPECT_TRUE(view.Has(0, 2 * kPage));
  EXPECT_TRUE(view.Has(2 * kPage, 0));
  EXPECT_FALSE(view.Has(1, 2 * kPage));
  EXPECT_FALSE(view.Has(~uint64_t{0}, 1));
  EXPECT_FALSE(view.Has(~uint64_t{0}, 2 * kPage));
}

// The pages outlive their owner's arena as long as somebody reads them.
TEST(ArenaView, OutlivesTheArena) {
  auto arena = MakeArena(kPage);
  std::memcpy(arena->Take(kPage), "text", 5);
  const ArenaView view = ViewOf(*arena);
  arena.reset();
  EXPECT_STREQ(reinterpret_cast<const char*>(view.Find(0, 5)->data()), "text");
}

// ---- buffers of it ----

class SharedPagesTest : public testing::Test {
 protected:
  SharedPagesTest() { SetSharedPages(arena_.get()); }
  ~SharedPagesTest() override { SetSharedPages(nullptr); }
  static constexpr size_t kLarge = size_t{1} << 20;
  const std::unique_ptr<SharedArena> arena_ = MakeArena(4 * kLarge);
};

TEST_F(SharedPagesTest, BuffersThatAreAskedForLieInThem) {
  EXPECT_FALSE(arena_->Contains(Buffer::Allocate(kLarge).data()));
  EXPECT_FALSE(arena_->Contains(AllocateInSharedPages(100).data())) << "a small one";
  {
    Buffer buffer = AllocateInSharedPages(kLarge);
    EXPECT_TRUE(buffer.unique());
    std::memset(buffer.mutable_data(), 1, kLarge);
    if (!arena_->Contains(buffer.data())) GTEST_SKIP() << "this build has all buffers in the heap";
    EXPECT_EQ(SharedPagesUsed(), kLarge);
    const Buffer part = buffer.Slice(kLarge / 2, 100);
    buffer.Discard(0, kLarge / 4);
    EXPECT_EQ(SharedPagesUsed(), kLarge * 3 / 4);
    buffer = Buffer();
    EXPECT_EQ(part.data()[5], 1) << "a slice keeps it";
  }
  EXPECT_EQ(SharedPagesUsed(), 0u);
  std::vector<Buffer> all;
  for (int i = 0; i < 6; ++i) all.push_back(AllocateInSharedPages(kLarge));
  EXPECT_TRUE(arena_->Contains(all[3].data()));
  EXPECT_FALSE(arena_->Contains(all[4].data())) << "there are none left";
  std::memset(all[5].mutable_data(), 1, kLarge);
}

}  // namespace
}  // namespace cairn
