// Runs transfers by io_uring, with files and memory registered.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "nvme/ring.hpp"

namespace prun::nvme {
namespace {

constexpr std::size_t most_memory = std::size_t{1} << 30;  // size of one registered piece, as the kernel
                                                           // allows it
constexpr unsigned most_pieces = 1024;

class Uring final : public Ring {
 public:
  Uring(const std::vector<int>& files, std::size_t depth) {
    check(io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0));
    try {
      check(io_uring_register_files(&ring_, files.data(), static_cast<unsigned>(files.size())));
    } catch (const std::system_error&) {
      io_uring_queue_exit(&ring_);
      throw;
    }
    has_table_ = io_uring_register_buffers_sparse(&ring_, most_pieces) == 0 || register_empty();
  }
  // The system ends a ring some time after it is told to: files must be released before, or a drive seems
  // full to the next start.
  ~Uring() override {
    io_uring_unregister_files(&ring_);
    io_uring_queue_exit(&ring_);
  }
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  std::string know(std::span<std::byte> memory) override {
    if (piece_of(memory) >= 0) return {};
    for (; !memory.empty(); memory = memory.subspan(std::min(memory.size(), most_memory))) {
      const std::span<std::byte> piece = memory.first(std::min(memory.size(), most_memory));
      if (piece_of(piece) >= 0) continue;
      if (known_.size() == most_pieces) return "no more than 1024 pieces of it";
      const iovec vector{piece.data(), piece.size()};
      const auto index = static_cast<unsigned>(known_.size());
      const int result =
          has_table_ ? io_uring_register_buffers_update_tag(&ring_, index, &vector, nullptr, 1) : -ENOSYS;
      if (result == -ENOMEM) return "too little may be locked; ulimit -l unlimited helps";
      if (result < 0) return std::strerror(-result);
      known_.push_back(piece);
    }
    return {};
  }

  bool add(const Transfer& transfer) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (!entry) return false;
    const auto file = static_cast<int>(transfer.file);
    const auto bytes = static_cast<unsigned>(transfer.bytes);
    const auto offset = static_cast<std::uint64_t>(transfer.offset);
    const int piece = piece_of({transfer.memory, static_cast<std::size_t>(transfer.bytes)});
    if (piece >= 0 && transfer.write)
      io_uring_prep_write_fixed(entry, file, transfer.memory, bytes, offset, piece);
    else if (piece >= 0)
      io_uring_prep_read_fixed(entry, file, transfer.memory, bytes, offset, piece);
    else if (transfer.write)
      io_uring_prep_write(entry, file, transfer.memory, bytes, offset);
    else
      io_uring_prep_read(entry, file, transfer.memory, bytes, offset);
    io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(entry, transfer.tag);
    return true;
  }

  void wait(std::chrono::microseconds at_most, std::vector<Ended>& ended) override {
    __kernel_timespec limit{};
    limit.tv_sec = at_most.count() / 1'000'000;
    limit.tv_nsec = at_most.count() % 1'000'000 * 1000;
    io_uring_cqe* first = nullptr;
    const int result = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr);
    if (result < 0 && result != -ETIME && result != -EINTR && result != -EAGAIN && result != -EBUSY)
      check(result);
    unsigned head = 0, count = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(&ring_, head, entry) {
      ended.push_back({io_uring_cqe_get_data64(entry), entry->res});
      ++count;
    }
    io_uring_cq_advance(&ring_, count);
  }

 private:
  // Registers empty tables: kernels before 5.19 need one of this form, which is filled later.
  bool register_empty() {
    const std::vector<iovec> empty(most_pieces, iovec{nullptr, 0});
    return io_uring_register_buffers(&ring_, empty.data(), most_pieces) == 0;
  }

  static void check(int result) {
    if (result < 0) throw std::system_error(-result, std::generic_category(), "io_uring");
  }

  // Returns the registered memory that contains all of the bytes, or -1 if there is none.
  int piece_of(std::span<std::byte> bytes) const {
    const auto inside = [&](std::span<std::byte> piece) {
      return piece.data() <= bytes.data() && bytes.data() + bytes.size() <= piece.data() + piece.size();
    };
    const auto found = std::find_if(known_.begin(), known_.end(), inside);
    return found == known_.end() ? -1 : static_cast<int>(found - known_.begin());
  }

  io_uring ring_{};
  bool has_table_ = false;
  std::vector<std::span<std::byte>> known_;
};

}  // namespace

std::unique_ptr<Ring> make_uring(const std::vector<int>& files, std::size_t depth) {
  return std::make_unique<Uring>(files, depth);
}

}  // namespace prun::nvme
