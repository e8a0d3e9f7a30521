// Presents bytes on one or several drives as one line of addresses, in stripes over a file on each, and the
// channels that move them. If requested, a checksum for each block is kept in memory.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "nvme/channel.hpp"
#include "nvme/drive_file.hpp"
#include "nvme/ring.hpp"

namespace prun::nvme {

struct Settings {
  std::vector<std::filesystem::path> folders;
  std::int64_t stripe = std::int64_t{1} << 20;  // multiple of the block
  std::size_t depth = 16;                       // transfers under way in each direction on each drive
  bool direct = true;
  bool checksum = false;
  std::chrono::seconds limit{30};  // time after which a transfer counts as lost
};

// Says where some bytes of the line are stored.
struct Stretch {
  std::size_t file = 0;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // bytes up to the end of the stripe
};

class Store {
 public:
  // Makes a store, all of which reads as zero.
  Store(Settings settings, std::int64_t bytes, MakeRing make_ring);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const Settings& settings() const { return settings_; }
  std::int64_t bytes() const { return bytes_; }
  const std::vector<std::unique_ptr<DriveFile>>& files() const { return files_; }
  Stretch stretch_at(std::int64_t address) const;

  // Opens a channel; each thread that moves bytes beside others has one. The store must outlive it.
  std::unique_ptr<Channel> open_channel();

  // Reads bytes; any thread may move any bytes, except those that another thread writes meanwhile.
  void read(std::int64_t address, std::span<std::byte> to);
  void write(std::int64_t address, std::span<const std::byte> from);
  // Makes bytes zero; a store that nothing was written to is left as it is.
  void clear(std::int64_t address, std::int64_t bytes);
  // Must be called before a channel writes.
  void note_writing() { written_ = true; }

  // Notes the checksums of a transfer's blocks, as they are in memory.
  void note_checksums(std::size_t file, std::int64_t offset, std::span<const std::byte> bytes);
  // Returns the first block that differs from its checksum.
  std::optional<std::int64_t> damaged_block(std::size_t file, std::int64_t offset,
                                            std::span<const std::byte> bytes) const;

 private:
  // Lends a channel for as long as any thread moves bytes; waits if all are taken.
  class Loan {
   public:
    explicit Loan(Store& store);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    void move(bool write, std::int64_t address, std::byte* memory, std::int64_t bytes);

   private:
    Store& store_;
    std::unique_ptr<Channel> channel_;
  };

  std::int64_t bytes_of_file(std::size_t file) const;
  void look(Loan& loan, std::int64_t address, std::span<std::byte> to);
  void patch(Loan& loan, std::int64_t address, std::span<const std::byte> from);

  const Settings settings_;
  const std::int64_t bytes_;
  const MakeRing make_ring_;
  std::vector<std::unique_ptr<DriveFile>> files_;
  std::atomic<bool> written_ = false;
  std::vector<std::vector<std::uint32_t>> checksums_;  // checksums by file and block; empty unless requested
  std::mutex edges_;                                   // guards blocks whose rest another thread may write
  std::mutex host_;                                    // guards the channels that are lent
  std::condition_variable returned_;
  std::size_t opened_ = 0;
  std::vector<std::unique_ptr<Channel>> idle_;
};

}  // namespace prun::nvme
