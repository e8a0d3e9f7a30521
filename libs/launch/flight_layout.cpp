#include "launch/flight_layout.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "launch/limits.hpp"

namespace prun {

// An event that changes while it is copied comes out with sequence 0, as one that was never written.
std::vector<std::uint64_t> FlightLayout::copy(const void* memory) {
  std::vector<std::uint64_t> out(flight_layout_words);
  const FlightWord* from = static_cast<const FlightWord*>(memory);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = from[i].load(std::memory_order_acquire);
  const auto* layout = static_cast<const FlightLayout*>(memory);
  const std::size_t first =
      static_cast<std::size_t>(reinterpret_cast<const FlightWord*>(layout->events) - from);
  for (std::size_t i = 0; i < flight_events; ++i) {
    std::uint64_t& copied = out[first + i * sizeof(FlightEventWords) / 8];
    if (layout->events[i].sequence.load(std::memory_order_relaxed) != copied) copied = 0;
  }
  return out;
}

void* map_flight_record(int fd, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, sizeof(FlightLayout), protection, flags, fd, 0);
  if (memory == MAP_FAILED)
    throw_error(ErrorCode::unsupported, "cannot map the flight record: ", refusal_text(errno));
  return memory;
}

void check_flight_record(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(sizeof(FlightLayout)))
    throw_error(ErrorCode::bad_input, "descriptor ", fd, " is no flight record; start ranks with prun only");
}

FileDescriptor make_flight_record() {
  constexpr std::size_t bytes = sizeof(FlightLayout);
  FileDescriptor memory(::memfd_create("prun-flight", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.is_open() || ::ftruncate(memory.get(), bytes) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_error(ErrorCode::unsupported, "cannot make a flight record of ", bytes,
                " bytes: ", refusal_text(errno));
  return memory;
}

}  // namespace prun
