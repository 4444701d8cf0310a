// The limits of what is read from and written to S3, with the reason for each and how they depend on one another.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// ---- requests ----

inline constexpr absl::Duration kS3ConnectMax = absl::Seconds(10);
// Of one attempt. A part of kS3PartBytesMax needs 28 KB/s.
inline constexpr absl::Duration kS3AttemptMax = absl::Minutes(5);
// An attempt ends after this long below kS3BytesPerSecondMin.
inline constexpr absl::Duration kS3SilentMax = absl::Seconds(20);
inline constexpr int64_t kS3BytesPerSecondMin = 1024;
// The same where the server works before it replies: it copies an object, or puts parts together.
inline constexpr absl::Duration kS3WorkMax = absl::Minutes(4);
// A request is repeated for this long after its first failure.
inline constexpr absl::Duration kS3RetryMax = absl::Seconds(60);
// Where somebody waits who submits a job. The probe itself ends at the time that its caller gives; it is removed after.
inline constexpr absl::Duration kS3ProbeRetryMax = absl::Seconds(10);
inline constexpr absl::Duration kS3ProbeRemovalMax = absl::Seconds(3);
inline constexpr absl::Duration kS3PauseMax = absl::Seconds(5);
inline constexpr size_t kS3HeaderBytesMax = size_t{64} << 10;
// A page of a listing: 1,000 keys of 1,024 bytes, each byte written as up to nine, are 9 MiB.
inline constexpr size_t kS3ReplyBytesMax = size_t{16} << 20;
// Of a reply without contents, and room for an error where less is asked for.
inline constexpr size_t kS3SmallReplyBytesMax = size_t{64} << 10;
inline constexpr size_t kS3ErrorTextBytesMax = 300;

// ---- replies in XML ----

inline constexpr int kXmlDepthMax = 8;
// A key with each byte written as "%xx", or a token.
inline constexpr size_t kXmlTextBytesMax = size_t{16} << 10;

// ---- keys and listings ----

inline constexpr size_t kS3KeyBytesMax = 1024;
inline constexpr size_t kS3BucketBytesMax = 63;
inline constexpr size_t kS3PageKeysMax = 1000;
// Objects of one data set: each takes about 300 bytes of memory while it is fetched. ImageNet has 1.3 million.
inline constexpr size_t kS3ObjectsMax = 2'000'000;
// A server may give less than it is asked for, but not for ever.
inline constexpr int kS3PagesMax = 20'000;

// ---- fetching ----

inline constexpr uint64_t kS3PartBytesMax = uint64_t{8} << 20;
// Requests of one data set at the same time: each holds a part in memory.
inline constexpr int kS3RequestsMax = 8;
// Data sets that one process fetches at the same time.
inline constexpr size_t kS3FetchesMax = 8;
// Complete objects are kept in the cache in groups, with one sync of the file system for each.
inline constexpr size_t kS3GroupObjectsMax = 1024;
inline constexpr uint64_t kS3GroupBytesMax = uint64_t{256} << 20;
// Another process that fetches the same data set is waited for while it makes progress this often: a part takes at most
// kS3RetryMax and an attempt more.
inline constexpr absl::Duration kS3OtherSilentMax = absl::Minutes(8);
inline constexpr absl::Duration kS3LockPause = absl::Milliseconds(50);

// ---- writing ----

// Of a file that is uploaded in parts of kS3PartBytesMax: S3 takes so many parts. 78 GiB.
inline constexpr uint64_t kS3PartsMax = 10'000;
inline constexpr uint64_t kS3PartBytesLeast = uint64_t{5} << 20;  // S3's own bound, but for the last one
// Parts of one file on their way at the same time: each one, and that which is being filled, is in memory.
inline constexpr size_t kS3UploadsMax = 4;
// A larger object is not copied by one request of S3.
inline constexpr uint64_t kS3CopyBytesMax = uint64_t{5} << 30;
// Files below a folder that is listed, each some 300 bytes of memory: checkpoints of one job.
inline constexpr size_t kS3FilesListedMax = 100'000;
// Settings and connections are used again for so long: new keys are taken after it.
inline constexpr absl::Duration kS3SessionMax = absl::Minutes(1);

// ---- the cache ----

inline constexpr uint64_t kS3CacheBytesDefault = uint64_t{20} << 30;
// Its lock is held while links are made: seconds for a million objects.
inline constexpr absl::Duration kS3CacheLockMax = absl::Minutes(5);
// Data sets are fetched one after the other where their locks are the same one of these.
inline constexpr uint64_t kS3FetchLocks = 64;

// ---- the environment ----

inline constexpr uint64_t kAwsFileBytesMax = uint64_t{1} << 20;

static_assert(kS3ObjectsMax <= kS3PageKeysMax * kS3PagesMax);
static_assert(kS3ReplyBytesMax > kS3PageKeysMax * kS3KeyBytesMax * 9, "a full page fits");
static_assert(kS3PartBytesMax <= kS3GroupBytesMax);
static_assert(kS3PartBytesMax >= kS3PartBytesLeast);
static_assert(kS3SilentMax < kS3WorkMax && kS3WorkMax < kS3AttemptMax);
static_assert(kS3KeyBytesMax + 512 < PATH_MAX, "a key below the cache's folder is a path");

}  // namespace cairn
