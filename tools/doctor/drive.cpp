#include "doctor/drive.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"
#include "train/checkpoint/run_folder.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t block = std::size_t{4} << 20;
constexpr std::int64_t most_blocks = 64;
constexpr auto longest = std::chrono::milliseconds(500);
constexpr double slow_rate = 150e6;  // is bytes a second: a checkpoint of 1B parameters takes minutes

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, Free>;

// Opens a file without a name, which is gone when it is closed.
FileDescriptor open_nameless(const fs::path& folder, int flags) {
  std::string name = (folder / ".prun-doctor-XXXXXX").string();
  FileDescriptor file(::mkostemp(name.data(), flags));
  if (file.is_open()) ::unlink(name.c_str());
  return file;
}

// Returns the bytes a second of `move` block by block, until the time is over; a failure is an Error.
template <class Move>
double rate_of(const fs::path& folder, std::int64_t blocks, std::int64_t& done, Move&& move) {
  const Clock::time_point begin = Clock::now();
  for (done = 0; done < blocks && Clock::now() - begin < longest; ++done)
    if (move(done * static_cast<std::int64_t>(block)) != static_cast<ssize_t>(block))
      throw_storage_error("try out", folder, errno);
  return static_cast<double>(done) * static_cast<double>(block) /
         std::max(1e-9, std::chrono::duration<double>(Clock::now() - begin).count());
}

struct Rates {
  double written = 0, read = 0;
};

Rates rates_of(const FileDescriptor& file, const fs::path& folder) {
  const Buffer buffer(std::aligned_alloc(4096, block));
  if (!buffer) throw_error(ErrorCode::unsupported, out_of_memory);
  std::memset(buffer.get(), 7, block);
  std::int64_t blocks = 0;
  Rates rates;
  rates.written = rate_of(folder, most_blocks, blocks, [&](std::int64_t at) {
    return ::fdatasync(file.get()) == 0 ? ::pwrite(file.get(), buffer.get(), block, at) : -1;
  });
  std::int64_t read = 0;
  rates.read = rate_of(folder, blocks, read,
                       [&](std::int64_t at) { return ::pread(file.get(), buffer.get(), block, at); });
  return rates;
}

}  // namespace

Finding drive_finding(const fs::path& folder) {
  bool direct = true;
  Rates rates;
  Finding finding = attempt("drive", [&] {
    const fs::path at = existing_folder(folder);
    const std::int64_t room = free_bytes(at);
    if (room < most_blocks * static_cast<std::int64_t>(block))
      throw_error(ErrorCode::storage, "cannot measure the drive of ", at.string(), ": ", size_text(room),
                  " free; delete files, or set run.out to another folder");
    FileDescriptor file = open_nameless(at, O_DIRECT);
    direct = file.is_open();
    if (!direct) file = open_nameless(at, 0);
    if (!file.is_open()) throw_storage_error("create a file in", at, errno);
    rates = rates_of(file, at);
    return detail::concat(at.string(), ": ", size_text(room), " free, written at ", size_text(rates.written),
                          "/s, read at ", size_text(rates.read), "/s",
                          direct ? "" : ", through the system's cache: no O_DIRECT here");
  });
  if (finding.health == Health::good && (!direct || rates.written < slow_rate)) {
    finding.health = Health::slow;
    finding.mend = "name a folder on a local drive (NVMe) in run.out, or --set run.out=FOLDER";
  }
  return finding;
}

}  // namespace prun
