// absl::Mutex, CondVar, Notification and BlockingCounter on pthread mutexes, linked into every program of the preset
// tsan.
//
// Debian's Abseil is not instrumented: ThreadSanitizer would not see that its Mutex orders anything, and would report
// every access under one. Calls bind to what the program itself defines before they bind to a shared library, also the
// calls of gRPC, so that these definitions serve both. What a Mutex promises, these keep; a reader's lock is a writer's
// here, and the order of waiters is the system's.
//
// Mutex::mu_ and CondVar::cv_ hold the address of what stands behind them, made at the first use.
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace {

void MustBeZero(int error) {
  if (error != 0) std::abort();
}

struct PthreadMutex {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;  // what Conditions read
  int awaiting = 0;                                   // guarded by mutex
  ~PthreadMutex() {
    pthread_cond_destroy(&changed);
    MustBeZero(pthread_mutex_destroy(&mutex));
  }
};

struct PthreadCond {
  pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
  ~PthreadCond() { pthread_cond_destroy(&cond); }
};

template <typename T>
T& Behind(std::atomic<intptr_t>& word) {
  intptr_t at = word.load(std::memory_order_acquire);
  if (at == 0) {
    T* made = new T;
    if (word.compare_exchange_strong(at, reinterpret_cast<intptr_t>(made), std::memory_order_acq_rel)) return *made;
    delete made;
  }
  return *reinterpret_cast<T*>(at);
}

template <typename T>
void Delete(std::atomic<intptr_t>& word) {
  delete reinterpret_cast<T*>(word.exchange(0, std::memory_order_acq_rel));
}

// False: the deadline passed.
bool WaitUntil(pthread_cond_t& cond, pthread_mutex_t& mutex, absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) {
    MustBeZero(pthread_cond_wait(&cond, &mutex));
    return true;
  }
  const timespec at = absl::ToTimespec(deadline);
  const int error = pthread_cond_timedwait(&cond, &mutex, &at);
  if (error != ETIMEDOUT) MustBeZero(error);
  return error == 0;
}

// The mutex is about to be let go of: those who wait for a Condition look again.
void TellAwaiting(PthreadMutex& m) {
  if (m.awaiting > 0) pthread_cond_broadcast(&m.changed);
}

bool AwaitUntil(PthreadMutex& m, const absl::Condition& condition, absl::Time deadline) {
  if (condition.Eval()) return true;
  TellAwaiting(m);
  ++m.awaiting;
  bool in_time = true;
  while (in_time && !condition.Eval()) in_time = WaitUntil(m.changed, m.mutex, deadline);
  --m.awaiting;
  return in_time || condition.Eval();
}

absl::Time In(absl::Duration timeout) { return absl::Now() + timeout; }

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

// ---- Mutex ----

Mutex::~Mutex() { Delete<PthreadMutex>(mu_); }
void Mutex::Lock() { MustBeZero(pthread_mutex_lock(&Behind<PthreadMutex>(mu_).mutex)); }
void Mutex::Unlock() {
  PthreadMutex& m = Behind<PthreadMutex>(mu_);
  TellAwaiting(m);
  MustBeZero(pthread_mutex_unlock(&m.mutex));
}
bool Mutex::TryLock() { return pthread_mutex_trylock(&Behind<PthreadMutex>(mu_).mutex) == 0; }
void Mutex::AssertHeld() const {}
void Mutex::AssertReaderHeld() const {}
void Mutex::ReaderLock() { Lock(); }
void Mutex::ReaderUnlock() { Unlock(); }
bool Mutex::ReaderTryLock() { return TryLock(); }

void Mutex::Await(const Condition& c) { AwaitUntil(Behind<PthreadMutex>(mu_), c, InfiniteFuture()); }
bool Mutex::AwaitWithTimeout(const Condition& c, Duration timeout) { return AwaitWithDeadline(c, In(timeout)); }
bool Mutex::AwaitWithDeadline(const Condition& c, Time deadline) {
  return AwaitUntil(Behind<PthreadMutex>(mu_), c, deadline);
}
void Mutex::LockWhen(const Condition& c) { LockWhenWithDeadline(c, InfiniteFuture()); }
bool Mutex::LockWhenWithTimeout(const Condition& c, Duration timeout) { return LockWhenWithDeadline(c, In(timeout)); }
bool Mutex::LockWhenWithDeadline(const Condition& c, Time deadline) {
  Lock();
  return AwaitWithDeadline(c, deadline);
}
void Mutex::ReaderLockWhen(const Condition& c) { LockWhen(c); }
bool Mutex::ReaderLockWhenWithTimeout(const Condition& c, Duration timeout) { return LockWhenWithTimeout(c, timeout); }
bool Mutex::ReaderLockWhenWithDeadline(const Condition& c, Time deadline) { return LockWhenWithDeadline(c, deadline); }

void ReleasableMutexLock::Release() {
  mu_->Unlock();
  mu_ = nullptr;
}

// ---- CondVar ----

CondVar::~CondVar() { Delete<PthreadCond>(cv_); }
void CondVar::Wait(Mutex* mu) { WaitWithDeadline(mu, InfiniteFuture()); }
bool CondVar::WaitWithTimeout(Mutex* mu, Duration timeout) { return WaitWithDeadline(mu, In(timeout)); }
bool CondVar::WaitWithDeadline(Mutex* mu, Time deadline) {
  PthreadMutex& m = Behind<PthreadMutex>(mu->mu_);
  TellAwaiting(m);
  return !WaitUntil(Behind<PthreadCond>(cv_).cond, m.mutex, deadline);
}
void CondVar::Signal() { pthread_cond_signal(&Behind<PthreadCond>(cv_).cond); }
void CondVar::SignalAll() { pthread_cond_broadcast(&Behind<PthreadCond>(cv_).cond); }

// ---- what Abseil makes of them ----

Notification::~Notification() { MutexLock lock(&mutex_); }
void Notification::Notify() {
  MutexLock lock(&mutex_);
  notified_yet_.store(true, std::memory_order_release);
}
void Notification::WaitForNotification() const { WaitForNotificationWithDeadline(InfiniteFuture()); }
bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  return WaitForNotificationWithDeadline(In(timeout));
}
bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  MutexLock lock(&mutex_);
  return mutex_.AwaitWithDeadline(Condition(&HasBeenNotifiedInternal, &notified_yet_), deadline);
}

BlockingCounter::BlockingCounter(int initial_count)
    : count_(initial_count), num_waiting_(0), done_(initial_count == 0) {}
bool BlockingCounter::DecrementCount() {
  MutexLock lock(&lock_);
  done_ = count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  return done_;
}
void BlockingCounter::Wait() {
  MutexLock lock(&lock_);
  lock_.Await(Condition(&done_));
}

ABSL_NAMESPACE_END
}  // namespace absl
