// Carries transfers between files and host memory: it takes some, runs them beside each other, and says how
// each has ended. It tries nothing twice and judges nothing: the channel does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace prun::nvme {

struct Transfer {
  bool write = false;
  std::size_t file = 0;  // number of the file in the ring
  std::int64_t offset = 0;
  std::byte* memory = nullptr;
  std::int64_t bytes = 0;
  std::uint64_t tag = 0;
};

struct Ended {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // number of bytes, or an errno below zero
};

// Runs transfers; one thread uses it at a time.
class Ring {
 public:
  virtual ~Ring() = default;
  // Registers memory that transfers will use again and again. Returns an empty text, or the system's
  // objection.
  virtual std::string know(std::span<std::byte>) { return {}; }
  // Adds a transfer; returns false if there is no room now.
  virtual bool add(const Transfer& transfer) = 0;
  // Starts what was added, and blocks the caller until something has ended, or for so long.
  virtual void wait(std::chrono::microseconds at_most, std::vector<Ended>& ended) = 0;
};

using MakeRing = std::function<std::unique_ptr<Ring>(const std::vector<int>& files, std::size_t depth)>;

// Makes a ring of io_uring, with the given files and memory registered. Throws std::system_error if the
// system forbids it.
std::unique_ptr<Ring> make_uring(const std::vector<int>& files, std::size_t depth);
// Makes a ring of threads that read and write, one transfer each.
std::unique_ptr<Ring> make_thread_ring(const std::vector<int>& files, std::size_t depth);

}  // namespace prun::nvme
