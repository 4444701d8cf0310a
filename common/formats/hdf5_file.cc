#include "common/formats/hdf5_file.h"

#include <fcntl.h>
#include <hdf5_hl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/base/files.h"
#include "common/formats/apart.h"
#include "common/formats/growth.h"
#include "common/formats/hdf5_chunks.h"
#include "common/formats/hdf5_handle.h"
#include "common/formats/limits.h"
#include "common/formats/plain_file.h"

namespace cairn {
namespace {

static_assert(sizeof(hid_t) <= sizeof(int64_t));

constexpr uint64_t kBytesPerSecondMin = uint64_t{10} << 20;  // inflate on a slow processor
constexpr int kReadSeconds = 10;
constexpr size_t kGrowBytes = size_t{4} << 20;  // steps by which a file in memory grows

// The library's lock; see the header.
ABSL_CONST_INIT absl::Mutex library_mutex(absl::kConstInit);

// Holds the lock, and silences the library, for one scope.
class Library {
 public:
  Library() : lock_(&library_mutex) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

 private:
  absl::MutexLock lock_;
};

absl::Status WriteError(const std::string& path, const std::string& what) {
  return absl::InternalError(absl::StrCat(path, ": cannot write ", what, "; is there enough memory?"));
}

absl::Status WriteBytes(const std::string& path, const char* data, size_t size) {
  const FileDescriptor file = CreateBeside(path);
  if (file.get() < 0) return FileError(path, "cannot be created");
  return WriteAll(file.get(), {data, size}, path);
}

// Checks the path `a/b/c` link by link: it must exist and stay within the file. NOT_FOUND if it is missing.
absl::Status CheckPath(hid_t file, const std::string& path) {
  std::string at;
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    absl::StrAppend(&at, at.empty() ? "" : "/", part);
    const htri_t there = H5Lexists(file, at.c_str(), H5P_DEFAULT);
    if (there == 0) return absl::NotFoundError(absl::StrCat("\"", path, "\" is missing"));
    H5L_info_t info;
    if (there < 0 || H5Lget_info(file, at.c_str(), &info, H5P_DEFAULT) < 0) {
      return absl::DataLossError(absl::StrCat("\"", at, "\" cannot be read"));
    }
    if (info.type != H5L_TYPE_HARD) {
      return absl::DataLossError(absl::StrCat("\"", at, "\" is a link to somewhere else, which is not followed"));
    }
  }
  return absl::OkStatus();
}

// Checks that the data is in this file.
absl::Status CheckPlainLayout(hid_t plist) {
  const H5D_layout_t layout = plist < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(plist);
  if (layout == H5D_LAYOUT_ERROR) return absl::DataLossError("cannot be read");
  if (H5Pget_external_count(plist) != 0 || layout == H5D_VIRTUAL) {
    return absl::DataLossError("its numbers are in another file, which is not read");
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> ShapeOf(hid_t dataset) {
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
  const int rank = space.ok() ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (rank < 0 || rank > kHdf5DimensionsMax) return absl::DataLossError("its shape cannot be read");
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  if (rank > 0 && H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0) {
    return absl::DataLossError("its shape cannot be read");
  }
  return Shape(dims.begin(), dims.end());
}

// Whether the type is float16, float32 or float64 in either byte order.
bool IsFloat(hid_t type) {
  if (type < 0 || H5Tget_class(type) != H5T_FLOAT) return false;
  const size_t size = H5Tget_size(type);
  return size == 2 || size == 4 || size == 8;
}

absl::Status ReadArray(hid_t dataset, const Shape& shape, absl::Span<float> out) {
  const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
  // A single integer: one of Keras' counters.
  const bool counts = shape.empty() && type.get() >= 0 && H5Tget_class(type.get()) == H5T_INTEGER;
  if (!IsFloat(type.get()) && !counts) {
    return absl::UnimplementedError("holds no float16, float32 or float64 numbers; save the model in float32");
  }
  const Hdf5Handle plist(H5Dget_create_plist(dataset), H5Pclose);
  CAIRN_RETURN_IF_ERROR(CheckPlainLayout(plist.get()));
  CAIRN_ASSIGN_OR_RETURN(const Shape found, ShapeOf(dataset));
  if (found != shape) {
    return absl::FailedPreconditionError(
        absl::StrCat("shape ", ToString(found), ", ", ToString(shape), " in the model"));
  }
  if (H5Pget_layout(plist.get()) == H5D_CHUNKED) return ReadHdf5Chunks(dataset, plist.get(), type.get(), shape, out);
  const hsize_t stored = H5Dget_storage_size(dataset);
  if (stored != 0 && stored != out.size() * H5Tget_size(type.get())) {
    return absl::DataLossError(
        absl::StrCat(stored, " bytes are stored for shape ", ToString(shape), "; the file is damaged"));
  }
  if (!out.empty() && H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) < 0) {
    return absl::DataLossError("cannot be read; the file is damaged");
  }
  return absl::OkStatus();
}

// The contents of a fixed-size string, which is padded with zeros.
std::string WithoutEnd(const char* text, size_t size) {
  while (size > 0 && text[size - 1] == '\0') --size;
  return std::string(text, size);
}

// Reads fixed-size strings, or pointers to strings, whichever the attribute has.
absl::StatusOr<std::vector<std::string>> ReadTexts(hid_t attribute, size_t bytes_max) {
  const Hdf5Handle type(H5Aget_type(attribute), H5Tclose), space(H5Aget_space(attribute), H5Sclose);
  const hssize_t count = space.ok() ? H5Sget_simple_extent_npoints(space.get()) : -1;
  if (!type.ok() || count < 0) return absl::DataLossError("cannot be read; the file is damaged");
  if (count == 0) return std::vector<std::string>();  // an empty list may have any type
  if (H5Tget_class(type.get()) != H5T_STRING) return absl::DataLossError("is not text");
  const size_t size = H5Tget_size(type.get()), texts = static_cast<size_t>(count);
  if (size == 0 || texts > bytes_max / size) {
    return absl::DataLossError(absl::StrCat("has more than ", bytes_max, " bytes"));
  }
  std::vector<std::string> read;
  std::vector<char> bytes(texts * size, '\0');
  if (H5Aread(attribute, type.get(), bytes.data()) < 0) {
    return absl::DataLossError("cannot be read; the file is damaged");
  }
  if (H5Tis_variable_str(type.get()) <= 0) {
    for (size_t i = 0; i < texts; ++i) read.push_back(WithoutEnd(bytes.data() + i * size, size));
    return read;
  }
  size_t sum = 0;
  for (size_t i = 0; i < texts && sum <= bytes_max; ++i) {
    const char* text = nullptr;
    std::memcpy(&text, bytes.data() + i * size, sizeof(text));
    read.emplace_back(text == nullptr ? "" : text);
    sum += read.back().size();
  }
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, bytes.data());
  if (sum > bytes_max) return absl::DataLossError(absl::StrCat("has more than ", bytes_max, " bytes"));
  return read;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Hdf5Writer>> Hdf5Writer::Create(const std::string& path) {
  const Library library;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (!access.ok() || H5Pset_fapl_core(access.get(), kGrowBytes, /*backing_store=*/false) < 0) {
    return absl::InternalError(absl::StrCat(path, ": the HDF5 library cannot create files in memory"));
  }
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get());
  if (file < 0) return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory to make it in"));
  return std::unique_ptr<Hdf5Writer>(new Hdf5Writer(path, file));
}

Hdf5Writer::~Hdf5Writer() {
  const Library library;
  if (file_ >= 0) H5Fclose(static_cast<hid_t>(file_));
}

absl::Status Hdf5Writer::AddGroup(const std::string& group, const std::string& name) {
  const Library library;
  const Hdf5Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  const Hdf5Handle made(H5Gcreate2(static_cast<hid_t>(file_), group.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT),
                        H5Gclose);
  const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  if (!made.ok() || !type.ok() || !space.ok()) return WriteError(path_, group);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const Hdf5Handle attribute(H5Acreate2(made.get(), "name", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                             H5Aclose);
  const char* text = name.c_str();
  if (!attribute.ok() || H5Awrite(attribute.get(), type.get(), &text) < 0) return WriteError(path_, group);
  return absl::OkStatus();
}

absl::Status Hdf5Writer::AddArray(const std::string& group, const std::string& name, const Shape& shape,
                                  absl::Span<const float> values) {
  const Library library;
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Hdf5Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
  const std::string path = absl::StrCat(group, "/", name);
  if (!space.ok()) return WriteError(path_, path);
  const Hdf5Handle dataset(H5Dcreate2(static_cast<hid_t>(file_), path.c_str(), H5T_IEEE_F32LE, space.get(), H5P_DEFAULT,
                                      H5P_DEFAULT, H5P_DEFAULT),
                           H5Dclose);
  if (!dataset.ok() || H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    return WriteError(path_, path);
  }
  return absl::OkStatus();
}

absl::Status Hdf5Writer::Close() {
  const Library library;
  const hid_t file = static_cast<hid_t>(std::exchange(file_, -1));
  void** memory = nullptr;  // after a flush it extends to the end of the file
  absl::Status status = WriteError(path_, "its end");
  if (H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0 &&
      H5Fget_vfd_handle(file, H5P_DEFAULT, reinterpret_cast<void**>(&memory)) >= 0) {
    const ssize_t size = H5Fget_file_image(file, nullptr, 0);
    if (size > 0) status = WriteBytes(path_, static_cast<const char*>(*memory), static_cast<size_t>(size));
  }
  H5Fclose(file);
  return status;
}

absl::StatusOr<int64_t> Hdf5Reader::CountIn(const std::string& group) const {
  const absl::Status path = CheckPath(file_, group);
  if (absl::IsNotFound(path)) return -1;
  if (!path.ok()) return Annotate(path, where_);
  const Hdf5Handle opened(H5Gopen2(file_, group.c_str(), H5P_DEFAULT), H5Gclose);
  H5G_info_t info;
  if (!opened.ok() || H5Gget_info(opened.get(), &info) < 0) {
    return absl::DataLossError(absl::StrCat(where_, ": \"", group, "\" is not a group"));
  }
  return static_cast<int64_t>(info.nlinks);
}

absl::Status Hdf5Reader::Read(const std::string& path, const Shape& shape, absl::Span<float> out) const {
  CAIRN_RETURN_IF_ERROR(Annotate(CheckPath(file_, path), where_));
  const Hdf5Handle dataset(H5Dopen2(file_, path.c_str(), H5P_DEFAULT), H5Dclose);
  const std::string quoted = absl::StrCat("\"", path, "\"");
  if (!dataset.ok()) return absl::DataLossError(absl::StrCat(where_, ": ", quoted, " is not an array"));
  return Annotate(ReadArray(dataset.get(), shape, out), absl::StrCat(where_, ": ", quoted));
}

absl::StatusOr<std::vector<std::string>> Hdf5Reader::Texts(const std::string& group, const std::string& attribute,
                                                           size_t bytes_max) const {
  if (!group.empty()) CAIRN_RETURN_IF_ERROR(Annotate(CheckPath(file_, group), where_));
  const Hdf5Handle opened(H5Gopen2(file_, group.empty() ? "/" : group.c_str(), H5P_DEFAULT), H5Gclose);
  const std::string what =
      absl::StrCat(where_, ": attribute \"", attribute, "\" of ", group.empty() ? "the file" : group);
  if (!opened.ok()) return absl::DataLossError(absl::StrCat(where_, ": \"", group, "\" is not a group"));
  const htri_t there = H5Aexists(opened.get(), attribute.c_str());
  if (there == 0) return absl::NotFoundError(absl::StrCat(what, " is missing"));
  const Hdf5Handle found(there < 0 ? -1 : H5Aopen(opened.get(), attribute.c_str(), H5P_DEFAULT), H5Aclose);
  if (!found.ok()) return absl::DataLossError(absl::StrCat(what, " cannot be read; the file is damaged"));
  absl::StatusOr<std::vector<std::string>> texts = ReadTexts(found.get(), bytes_max);
  if (!texts.ok()) return absl::Status(texts.status().code(), absl::StrCat(what, " ", texts.status().message()));
  return texts;
}

absl::StatusOr<Buffer> ReadHdf5(const Buffer& bytes, const std::string& where, int64_t numbers,
                                absl::FunctionRef<absl::Status(const Hdf5Reader&, absl::Span<float>)> read) {
  const uint64_t size = static_cast<uint64_t>(numbers) * sizeof(float);
  if (GrowsTooMuch(bytes.size(), size)) {
    return absl::FailedPreconditionError(absl::StrCat(where, ": has ", bytes.size(),
                                                      " bytes, the model's variables have ", size,
                                                      "; was it saved from the same model?"));
  }
  CAIRN_ASSIGN_OR_RETURN(Buffer numbers_read, AllocateShared(size));
  ApartLimits limits;
  limits.memory_bytes_max = kHdf5LibraryBytesMax + 2 * bytes.size() + 4 * size;
  limits.processor_max = absl::Seconds(kReadSeconds + static_cast<int64_t>((bytes.size() + size) / kBytesPerSecondMin));
  const absl::Span<float> out = numbers_read.mutable_floats();
  const Library library;  // so that no other thread is inside the library at the fork
  const absl::Status status = RunApart(where, limits, [&]() -> absl::Status {
    H5PLset_loading_state(0);
    // The library may write to an image that it shares; with these flags and no write calls it does not.
    void* const image = const_cast<uint8_t*>(bytes.data());
    const hid_t file = bytes.empty() ? -1
                                     : H5LTopen_file_image(image, bytes.size(),
                                                           H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE);
    if (file < 0) return absl::DataLossError(absl::StrCat(where, ": not an HDF5 file, or a damaged one"));
    return read(Hdf5Reader(where, file), out);
  });
  if (!status.ok()) return status;
  return numbers_read;
}

absl::StatusOr<std::string> ReadHdf5Text(const Buffer& bytes, const std::string& where, size_t bytes_max,
                                         absl::FunctionRef<absl::StatusOr<std::string>(const Hdf5Reader&)> read) {
  // Returned through memory shared with the other process: the text's size, then its bytes.
  uint64_t size = 0;
  const size_t numbers = (sizeof(size) + bytes_max) / sizeof(float) + 1;
  const auto write = [&](const Hdf5Reader& reader, absl::Span<float> out) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const std::string text, read(reader));
    size = text.size();
    if (size > bytes_max) {
      return absl::DataLossError(absl::StrCat(where, ": has a text of ", size, " bytes; at most ", bytes_max));
    }
    auto* const to = reinterpret_cast<char*>(out.data());
    std::memcpy(to, &size, sizeof(size));
    std::memcpy(to + sizeof(size), text.data(), size);
    return absl::OkStatus();
  };
  CAIRN_ASSIGN_OR_RETURN(const Buffer shared, ReadHdf5(bytes, where, static_cast<int64_t>(numbers), write));
  const auto* const from = reinterpret_cast<const char*>(shared.data());
  std::memcpy(&size, from, sizeof(size));
  if (size > bytes_max) return absl::DataLossError(absl::StrCat(where, ": damaged"));
  return std::string(from + sizeof(size), size);
}

}  // namespace cairn
