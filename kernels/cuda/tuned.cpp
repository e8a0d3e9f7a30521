#include "cuda/tuned.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace prun::cuda {
namespace {

// FNV-1a: the library takes whatever numbers stand in an algorithm, so that damage must show before.
std::string checksum(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

[[noreturn]] void refuse(const std::string& file) {
  throw_error(ErrorCode::storage, file, " cannot be written");
}

// Held by one rank at a time. It is a file of its own, since the other one is replaced.
class Turn {
 public:
  explicit Turn(const std::string& file)
      : fd_(::open((file + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    if (fd_ < 0) refuse(file);
    while (::flock(fd_, LOCK_EX) != 0)
      if (errno != EINTR) {
        ::close(fd_);
        refuse(file);
      }
  }
  ~Turn() { ::close(fd_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int fd_;
};

}  // namespace

void TunedAlgorithms::read() {
  std::ifstream in(file_);
  for (std::string line; std::getline(in, line);) {
    const std::size_t end = line.rfind('\t'), middle = end == 0 ? end : line.rfind('\t', end - 1);
    if (end == std::string::npos || middle == std::string::npos) continue;
    if (line.substr(end + 1) != checksum(line.substr(0, end))) continue;
    known_[line.substr(0, middle)] = line.substr(middle + 1, end - middle - 1);
  }
}

TunedAlgorithms::TunedAlgorithms(std::string file) : file_(std::move(file)) { read(); }

bool TunedAlgorithms::settle(const Gemm& gemm, GemmPlan& plan, const GemmOperands& operands, Stream stream) {
  const auto choose = [&](const std::string& algorithm) {
    if (!gemm.choose(plan, algorithm)) return false;
    gemm.run(plan, operands, stream);
    return true;
  };
  return settle(gemm.identity() + ", " + text_of(plan.product()), choose, [&] {
    gemm.tune(plan, operands, stream);
    return plan.algorithm();
  });
}

bool TunedAlgorithms::settle(const std::string& key, const std::function<bool(const std::string&)>& choose,
                             const std::function<std::string()>& tune) {
  if (choose(find(key))) return false;
  const Turn turn(file_);
  read();
  if (choose(find(key))) return false;
  known_[key] = tune();
  write();
  return true;
}

std::string TunedAlgorithms::find(const std::string& key) const {
  const auto line = known_.find(key);
  return line == known_.end() ? std::string() : line->second;
}

// Under another name first, since others read it at any time.
void TunedAlgorithms::write() const {
  const std::string written = file_ + '.' + std::to_string(::getpid());
  std::ofstream out(written);
  for (const auto& [key, algorithm] : known_) {
    std::string line = key;
    (line += '\t') += algorithm;
    out << line << '\t' << checksum(line) << '\n';
  }
  out.close();
  std::error_code status;
  if (out) std::filesystem::rename(written, file_, status);
  if (!out || status) refuse(file_);
}

}  // namespace prun::cuda
