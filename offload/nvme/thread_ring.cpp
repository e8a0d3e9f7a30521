// Runs transfers by threads that read and write, one transfer each.
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/thread.hpp"
#include "nvme/ring.hpp"

namespace prun::nvme {
namespace {

// Holds what threads and ring share. A thread that never returns from a read outlives the ring.
struct Shared {
  std::vector<int> files;
  std::size_t depth = 0, taken = 0;  // transfers that were added and not handed back
  bool stop = false;
  std::mutex mutex;
  std::condition_variable work, news;
  std::deque<Transfer> open;
  std::vector<Ended> ended;
};

std::int64_t carry_out(const Shared& shared, const Transfer& transfer) {
  const int file = shared.files[transfer.file];
  const auto bytes = static_cast<std::size_t>(transfer.bytes);
  const ssize_t done = transfer.write ? ::pwrite(file, transfer.memory, bytes, transfer.offset)
                                      : ::pread(file, transfer.memory, bytes, transfer.offset);
  return done < 0 ? -errno : done;
}

void work_on(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->work.wait(lock, [&] { return shared->stop || !shared->open.empty(); });
    if (shared->stop) return;
    const Transfer transfer = shared->open.front();
    shared->open.pop_front();
    lock.unlock();
    const std::int64_t result = carry_out(*shared, transfer);
    lock.lock();
    shared->ended.push_back({transfer.tag, result});
    shared->news.notify_one();
  }
}

class ThreadRing final : public Ring {
 public:
  ThreadRing(const std::vector<int>& files, std::size_t depth) : shared_(std::make_shared<Shared>()) {
    shared_->files = files;
    shared_->depth = depth;
    for (std::size_t i = 0; i < std::min(depth, most_threads); ++i) try {
        start_thread("transfers between drives and memory", [shared = shared_] { work_on(shared); }).detach();
      } catch (const Error&) {
        if (i == 0) throw;
        break;  // fewer threads are enough
      }
  }
  ~ThreadRing() override {
    const std::scoped_lock lock(shared_->mutex);
    shared_->stop = true;
    shared_->work.notify_all();
  }
  ThreadRing(const ThreadRing&) = delete;
  ThreadRing& operator=(const ThreadRing&) = delete;

  bool add(const Transfer& transfer) override {
    const std::scoped_lock lock(shared_->mutex);
    if (shared_->taken == shared_->depth) return false;
    ++shared_->taken;
    shared_->open.push_back(transfer);
    shared_->work.notify_one();
    return true;
  }

  void wait(std::chrono::microseconds at_most, std::vector<Ended>& ended) override {
    std::unique_lock lock(shared_->mutex);
    shared_->news.wait_for(lock, at_most, [&] { return !shared_->ended.empty(); });
    shared_->taken -= shared_->ended.size();
    ended.insert(ended.end(), shared_->ended.begin(), shared_->ended.end());
    shared_->ended.clear();
  }

 private:
  static constexpr std::size_t most_threads = 16;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<Ring> make_thread_ring(const std::vector<int>& files, std::size_t depth) {
  return std::make_unique<ThreadRing>(files, depth);
}

}  // namespace prun::nvme
