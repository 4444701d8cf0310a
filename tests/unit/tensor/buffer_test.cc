// Goal: Buffer shares and does not copy, keeps its owner alive, and is aligned.
#include "common/tensor/buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "common/base/log.h"

namespace cairn {
namespace {

TEST(Buffer, IsAlignedTo64) {
  for (size_t n : {1, 63, 64, 65, 4096, 1 << 20}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Buffer::Allocate(n).data()) % 64, 0u) << n;
  }
}

TEST(Buffer, NothingHasNoBytes) {
  for (const Buffer& b : {Buffer(), Buffer::Allocate(0), Buffer::Zeros(0), Buffer::CopyOf(nullptr, 0)}) {
    EXPECT_TRUE(b.empty());
    EXPECT_EQ(b.floats().size(), 0u);
    EXPECT_EQ(b.Slice(0, 0).size(), 0u);
  }
}

TEST(Buffer, CopiesShareAndSlicesKeepAlive) {
  Buffer a = Buffer::Zeros(16);
  EXPECT_TRUE(a.unique());
  Buffer slice = a.Slice(4, 8);
  EXPECT_FALSE(a.unique());
  a.mutable_floats()[1] = 2.5f;
  EXPECT_EQ(slice.floats()[0], 2.5f);
  EXPECT_EQ(slice.floats().size(), 2u);
  a = Buffer();
  EXPECT_TRUE(slice.unique());
  EXPECT_EQ(slice.floats()[0], 2.5f);
}

TEST(Buffer, CopyOfIsACopy) {
  std::string text = "abcd";
  const Buffer b = Buffer::CopyOf(text.data(), text.size());
  text[0] = 'z';
  EXPECT_EQ(std::memcmp(b.data(), "abcd", 4), 0);
}

TEST(Buffer, WrapHoldsItsOwner) {
  auto owner = std::make_shared<std::string>("owned bytes");
  std::weak_ptr<std::string> watch = owner;
  {
    const Buffer b = Buffer::Wrap(owner, owner->data(), owner->size());
    owner.reset();
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(std::memcmp(b.data(), "owned bytes", b.size()), 0);
  }
  EXPECT_TRUE(watch.expired());
}

TEST(BufferDeathTest, ASliceOutsideIsABug) {
  ASSERT_TRUE(InitLog({.program = "test"}).ok());  // to stderr
  const Buffer b = Buffer::Zeros(16);
  EXPECT_DEATH(b.Slice(8, 9), "slice outside");
  EXPECT_DEATH(b.Slice(17, 0), "slice outside");
  EXPECT_DEATH(b.Slice(8, ~size_t{0}), "slice outside");
}

TEST(Buffer, LargeOnesAreFreshUntilTheLastCopyIsGone) {
  const size_t bytes = (size_t{1} << 20) + 17;
  Buffer held = Buffer::Zeros(bytes);
  Buffer slice = held.Slice(100, 50);
  held = {};
  for (int i = 0; i < 10; ++i) {  // memory that goes round must not be the slice's, and Zeros must clear what was there
    Buffer b = Buffer::Zeros(bytes);
    for (size_t at = 0; at < bytes; at += 997) ASSERT_EQ(b.data()[at], 0);
    std::memset(b.mutable_data(), 0xff, bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 64, 0u);
  }
  for (size_t i = 0; i < slice.size(); ++i) ASSERT_EQ(slice.data()[i], 0);
}

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(NumElements({}), 1);
  EXPECT_EQ(NumElements({3, 4, 5}), 60);
  EXPECT_EQ(NumElements({3, 0}), 0);
  EXPECT_EQ(ToString({28, 28, 1}), "[28,28,1]");
  EXPECT_EQ(ToString(Shape()), "[]");
}

}  // namespace
}  // namespace cairn
