// Goal: whatever HDF5 can hold of floating-point arrays is read right, and a file that was made to do harm is refused
// with what is wrong. The library itself reads beyond a chunk's memory, or for ever, where a byte is altered: that ends
// in an error.
#include "common/formats/hdf5_file.h"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/formats/apart.h"
#include "common/formats/hdf5_handle.h"
#include "common/formats/plain_file.h"

namespace cairn {
namespace {

class Hdf5File : public testing::Test {
 protected:
  Hdf5File() {
    char name[] = "/tmp/cairn_hdf5_XXXXXX";
    CAIRN_CHECK(mkdtemp(name) != nullptr, "a temporary directory");
    dir_ = name;
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Hdf5File() override { std::filesystem::remove_all(dir_); }

  // The bytes of a file that `write` fills.
  Buffer File(const std::function<void(hid_t)>& write) const {
    const std::string path = (dir_ / "f.h5").string();
    {
      const Hdf5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
      CAIRN_CHECK(file.ok(), "a file");
      write(file.get());
    }
    return ReadFileBytes(path).value();
  }

  std::filesystem::path dir_;
};

constexpr int kRows = 3, kColumns = 5;
const Shape kShape = {kRows, kColumns};

std::vector<float> Numbers() {
  std::vector<float> numbers(kRows * kColumns);
  std::iota(numbers.begin(), numbers.end(), -4.0f);
  return numbers;
}

// How the array "a" is stored.
struct Storing {
  hid_t type = H5T_IEEE_F32LE;
  std::vector<hsize_t> chunk;
  std::function<void(hid_t)> filters = [](hid_t) {};
  bool may_grow = false;
};

Hdf5Handle MakeArray(hid_t file, const Storing& how) {
  const hsize_t dims[] = {kRows, kColumns}, unlimited[] = {H5S_UNLIMITED, H5S_UNLIMITED};
  const Hdf5Handle space(H5Screate_simple(2, dims, how.may_grow ? unlimited : nullptr), H5Sclose);
  const Hdf5Handle plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (!how.chunk.empty()) H5Pset_chunk(plist.get(), 2, how.chunk.data());
  how.filters(plist.get());
  return Hdf5Handle(H5Dcreate2(file, "a", how.type, space.get(), H5P_DEFAULT, plist.get(), H5P_DEFAULT), H5Dclose);
}

void WriteArray(hid_t file, const Storing& how) {
  const Hdf5Handle array = MakeArray(file, how);
  const std::vector<float> numbers = Numbers();
  CAIRN_CHECK(array.ok() && H5Dwrite(array.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()) >= 0,
              "an array");
}

absl::StatusOr<std::vector<float>> Read(const Buffer& bytes, const Shape& shape = kShape) {
  const absl::StatusOr<Buffer> read =
      ReadHdf5(bytes, "f.h5", NumElements(shape),
               [&](const Hdf5Reader& reader, absl::Span<float> out) { return reader.Read("a", shape, out); });
  if (!read.ok()) return read.status();
  return std::vector<float>(read->floats().begin(), read->floats().end());
}

std::string Error(const Buffer& bytes) { return std::string(Read(bytes).status().message()); }

TEST_F(Hdf5File, ReadsWhatItCanHold) {
  const auto gzip = [](hid_t plist) { H5Pset_deflate(plist, 6); };
  const auto all = [](hid_t plist) {
    H5Pset_shuffle(plist);
    H5Pset_deflate(plist, 6);
    H5Pset_fletcher32(plist);
  };
  const auto sum_first = [](hid_t plist) {
    H5Pset_fletcher32(plist);
    H5Pset_deflate(plist, 6);
  };
  const Storing ways[] = {{},
                          {H5T_IEEE_F64BE},
                          {H5T_IEEE_F32BE, {2, 2}},
                          {H5T_IEEE_F64LE, {2, 3}, gzip},
                          {H5T_IEEE_F32LE, {2, 2}, all},
                          {H5T_IEEE_F32LE, {3, 5}, sum_first},
                          {H5T_IEEE_F64LE, {2, 4}, all, true},
                          {H5T_IEEE_F32LE, {8, 8}, gzip, true}};
  for (const Storing& how : ways) {
    const auto read = Read(File([&](hid_t file) { WriteArray(file, how); }));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, Numbers());
  }
  // Long runs: the checksum's sums wrap, chunks have many rows.
  const auto large = File([&](hid_t file) {
    const hsize_t dims[] = {300, 200}, chunk[] = {128, 128};
    const Hdf5Handle space(H5Screate_simple(2, dims, nullptr), H5Sclose),
        plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(plist.get(), 2, chunk);
    all(plist.get());
    const Hdf5Handle array(H5Dcreate2(file, "a", H5T_IEEE_F32LE, space.get(), H5P_DEFAULT, plist.get(), H5P_DEFAULT),
                           H5Dclose);
    std::vector<float> numbers(60000);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    H5Dwrite(array.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
  });
  const auto read = Read(large, {300, 200});
  ASSERT_TRUE(read.ok()) << read.status();
  for (size_t i = 0; i < read->size(); ++i) ASSERT_EQ((*read)[i], static_cast<float>(i));
}

TEST_F(Hdf5File, WhatWasNeverWrittenIsTheFillValue) {
  const float fill = 2.5f;
  for (const Storing& how : {Storing{}, Storing{H5T_IEEE_F32LE, {2, 2}}}) {
    Storing with = how;
    with.filters = [&](hid_t plist) { H5Pset_fill_value(plist, H5T_NATIVE_FLOAT, &fill); };
    const auto read = Read(File([&](hid_t file) { (void)MakeArray(file, with); }));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, std::vector<float>(kRows * kColumns, fill));
  }
}

TEST_F(Hdf5File, RefusesWhatIsNotAsked) {
  const Buffer plain = File([](hid_t file) { WriteArray(file, {}); });
  EXPECT_EQ(Read(plain, {5, 3}).status().message(), "f.h5: \"a\": shape [3,5], [5,3] in the model");
  EXPECT_EQ(Error(File([](hid_t) {})), "f.h5: \"a\" is missing");
  EXPECT_EQ(Error(File([](hid_t file) { WriteArray(file, {H5T_STD_I32LE}); })),
            "f.h5: \"a\": holds no float16, float32 or float64 numbers; save the model in float32");
  EXPECT_EQ(Error(Buffer::CopyOf("not one", 7)), "f.h5: not an HDF5 file, or a damaged one");
  const auto scaled = [](hid_t plist) { H5Pset_scaleoffset(plist, H5Z_SO_FLOAT_DSCALE, 2); };
  EXPECT_EQ(Error(File([&](hid_t file) {
              WriteArray(file, {H5T_IEEE_F32LE, {2, 2}, scaled});
            })),
            "f.h5: \"a\": its filter 6 is not supported; save it without compression, or with only gzip, shuffle "
            "and fletcher32");
  EXPECT_EQ(Read(plain, {1 << 20, 1 << 10}).status().message(),
            absl::StrCat("f.h5: has ", plain.size(),
                         " bytes, the model's variables have 4294967296; was it saved from the same model?"));
}

TEST_F(Hdf5File, FollowsNothingOutOfTheFile) {
  constexpr char kLink[] = "f.h5: \"a\" is a link to somewhere else, which is not followed";
  EXPECT_EQ(
      Error(File([](hid_t file) { H5Lcreate_external("/etc/passwd", "a", file, "a", H5P_DEFAULT, H5P_DEFAULT); })),
      kLink);
  EXPECT_EQ(Error(File([](hid_t file) { H5Lcreate_soft("a", file, "a", H5P_DEFAULT, H5P_DEFAULT); })), kLink);
  constexpr char kElsewhere[] = "f.h5: \"a\": its numbers are in another file, which is not read";
  const std::string other = (dir_ / "other").string();
  EXPECT_EQ(Error(File([&](hid_t file) {
              Storing how;
              how.filters = [&](hid_t plist) { H5Pset_external(plist, other.c_str(), 0, 4096); };
              (void)MakeArray(file, how);
            })),
            kElsewhere);
  EXPECT_EQ(Error(File([&](hid_t file) {
              const hsize_t dims[] = {kRows, kColumns};
              const Hdf5Handle space(H5Screate_simple(2, dims, nullptr), H5Sclose);
              Storing how;
              how.filters = [&](hid_t plist) { H5Pset_virtual(plist, space.get(), other.c_str(), "b", space.get()); };
              (void)MakeArray(file, how);
            })),
            kElsewhere);
}

// ---- chunks with wrong contents ----

class Hdf5Chunk : public Hdf5File {
 protected:
  // The error of an array of one chunk that is stored as these bytes.
  std::string ErrorOf(const std::string& stored, const std::function<void(hid_t)>& filters) const {
    return Error(File([&](hid_t file) {
      const Hdf5Handle array = MakeArray(file, {H5T_IEEE_F32LE, {kRows, kColumns}, filters});
      const hsize_t at[] = {0, 0};
      CAIRN_CHECK(H5Dwrite_chunk(array.get(), H5P_DEFAULT, 0, at, stored.size(), stored.data()) >= 0, "a chunk");
    }));
  }
  static std::string Deflated(const std::string& bytes) {
    std::string out(compressBound(bytes.size()), '\0');
    uLongf size = out.size();
    CAIRN_CHECK(compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                         bytes.size()) == Z_OK,
                "deflate");
    out.resize(size);
    return out;
  }
};

TEST_F(Hdf5Chunk, IsRefusedUnlessItHoldsJustItsNumbers) {
  const auto gzip = [](hid_t plist) { H5Pset_deflate(plist, 6); };
  const auto sum = [](hid_t plist) { H5Pset_fletcher32(plist); };
  const auto none = [](hid_t) {};
  const std::string whole(60, 'x');
  EXPECT_EQ(ErrorOf(Deflated(whole), gzip), "");
  EXPECT_EQ(ErrorOf(whole, none), "");
  // Otherwise the library would read what lies behind it in memory.
  EXPECT_EQ(ErrorOf(Deflated(whole.substr(1)), gzip),
            "f.h5: \"a\": a chunk holds 59 bytes, not 60; the file is damaged");
  EXPECT_EQ(ErrorOf(whole.substr(1), none), "f.h5: \"a\": a chunk holds 59 bytes, not 60; the file is damaged");
  EXPECT_EQ(ErrorOf(whole + "y", none), "f.h5: \"a\": a chunk holds 61 bytes, not 60; the file is damaged");
  EXPECT_EQ(ErrorOf(std::string(5000, 'x'), none),
            "f.h5: \"a\": a chunk is stored in more bytes than it has; the file is damaged");
  EXPECT_EQ(ErrorOf(Deflated(std::string(1 << 20, '\0')), gzip),
            "f.h5: \"a\": a compressed chunk does not give at most 1084 bytes; the file is damaged");
  EXPECT_EQ(ErrorOf(whole, gzip),
            "f.h5: \"a\": a compressed chunk does not give at most 1084 bytes; the file is damaged");
  EXPECT_EQ(ErrorOf(whole + "1234", sum), "f.h5: \"a\": the checksum of a chunk is wrong; the file is damaged");
  EXPECT_EQ(ErrorOf("123", sum), "f.h5: \"a\": a chunk is shorter than its checksum; the file is damaged");
}

TEST_F(Hdf5Chunk, IsNoLargerThanItsArray) {
  EXPECT_EQ(Error(File([](hid_t file) {
              (void)MakeArray(file, {H5T_IEEE_F32LE, {1 << 10, 1 << 10}, [](hid_t) {}, true});
            })),
            "f.h5: \"a\": its chunks are larger than the array; the file is damaged");
}

// With such files the library itself reads beyond its memory, or does not terminate.
TEST_F(Hdf5Chunk, ReadsRightOrNotAtAllWhereAByteIsAltered) {
  const Buffer right = File([](hid_t file) {
    WriteArray(file, {H5T_IEEE_F32LE, {2, 2}, [](hid_t plist) {
                        H5Pset_shuffle(plist);
                        H5Pset_deflate(plist, 6);
                        H5Pset_fletcher32(plist);
                      }});
  });
  int refused = 0, tried = 0;
  for (size_t at = 1; at < right.size(); at += 13) {
    if (right.data()[at] == 0 && at % 2 == 0) continue;
    Buffer altered = Buffer::CopyOf(right.data(), right.size());
    altered.mutable_data()[at] ^= 0x81;
    refused += !Read(altered).ok();
    ++tried;
  }
  EXPECT_GT(refused, tried / 40);
  EXPECT_LT(refused, tried);
}

// ---- a process of its own ----

absl::Status Apart(const std::function<absl::Status()>& work) {
  return RunApart("f", {.memory_bytes_max = size_t{64} << 20, .processor_max = absl::Seconds(1)}, work);
}

TEST(Apart, GivesWhatWasDone) {
  Buffer shared = AllocateShared(1 << 16).value();
  EXPECT_EQ(Apart([&] {
              shared.mutable_data()[40000] = 7;
              return absl::OkStatus();
            }),
            absl::OkStatus());
  EXPECT_EQ(shared.data()[40000], 7);
  EXPECT_EQ(Apart([] { return absl::NotFoundError("no such thing"); }), absl::NotFoundError("no such thing"));
  EXPECT_EQ(Apart([] { return absl::NotFoundError(std::string(1 << 20, 'x')); }).message().size(), size_t{16} << 10);
}

TEST(Apart, EndsWhatDoesNot) {
  EXPECT_EQ(Apart([]() -> absl::Status {
              raise(SIGSEGV);
              return absl::OkStatus();
            }).message(),
            "f: the library that reads it ended with signal 11 (Segmentation fault); the file is damaged");
  EXPECT_EQ(Apart([]() -> absl::Status { _exit(0); }).message(),
            "f: the library that reads it ended with an error; the file is damaged");
  EXPECT_EQ(Apart([]() -> absl::Status {
              for (std::atomic_bool done = false; !done;) {
              }
              return absl::OkStatus();
            }).message(),
            "f: reading it took more than 1s or was killed; the file is damaged");
  EXPECT_EQ(Apart([]() -> absl::Status {
              const Buffer much = Buffer::Zeros(size_t{1} << 30);
              return absl::OkStatus();
            }).code(),
            absl::StatusCode::kDataLoss);
}

void SetFileBytesMax(rlim_t bytes) {
  signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, RLIM_INFINITY};
  CAIRN_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "a limit");
}

// In a process of its own. Code 0: each file was refused, and none is open.
[[noreturn]] void WriteWithoutRoom(const std::string& path) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = open_files();
  bool refused = true;
  for (const int64_t numbers : {4096, 262144}) {  // kept back by the library until the end, or written at once
    const auto writer = Hdf5Writer::Create(path).value();
    SetFileBytesMax(8192);
    absl::Status status = writer->AddGroup("layers/a/vars", "a");
    const std::vector<float> values(static_cast<size_t>(numbers), 1.0f);
    status.Update(writer->AddArray("layers/a/vars", "0", {numbers}, values));
    status.Update(writer->Close());
    refused = refused && !status.ok();
    SetFileBytesMax(RLIM_INFINITY);
  }
  std::exit(refused && open_files() == before ? 0 : 1);
}

TEST_F(Hdf5File, OneForWhichThereIsNoRoomIsAnErrorAndIsNotKeptOpen) {
  EXPECT_EXIT(WriteWithoutRoom((dir_ / "full.h5").string()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cairn
