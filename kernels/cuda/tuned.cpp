#include "cuda/tuned.hpp"

#include <unistd.h>

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

}  // namespace

TunedAlgorithms::Lines TunedAlgorithms::read(const std::string& file) {
  Lines lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t end = line.rfind('\t'), middle = end == 0 ? end : line.rfind('\t', end - 1);
    if (end == std::string::npos || middle == std::string::npos) continue;
    if (line.substr(end + 1) != checksum(line.substr(0, end))) continue;
    lines[line.substr(0, middle)] = line.substr(middle + 1, end - middle - 1);
  }
  return lines;
}

TunedAlgorithms::TunedAlgorithms(std::string file) : file_(std::move(file)), known_(read(file_)) {}

bool TunedAlgorithms::settle(const Gemm& gemm, GemmPlan& plan, const GemmOperands& operands, Stream stream) {
  const std::string key = gemm.identity() + ", " + text_of(plan.product());
  if (gemm.choose(plan, find(key))) {
    gemm.run(plan, operands, stream);
    return false;
  }
  gemm.tune(plan, operands, stream);
  remember(key, plan.algorithm());
  return true;
}

std::string TunedAlgorithms::find(const std::string& key) const {
  const auto line = known_.find(key);
  return line == known_.end() ? std::string() : line->second;
}

void TunedAlgorithms::remember(const std::string& key, const std::string& algorithm) {
  known_[key] = algorithm;
  new_ = true;
}

void TunedAlgorithms::save() {
  if (!new_) return;
  Lines all = read(file_);
  for (const auto& [key, algorithm] : known_) all[key] = algorithm;
  // Under another name first, since other ranks read and write it too.
  const std::string written = file_ + '.' + std::to_string(::getpid());
  std::ofstream out(written);
  for (const auto& [key, algorithm] : all) {
    std::string line = key;
    (line += '\t') += algorithm;
    out << line << '\t' << checksum(line) << '\n';
  }
  out.close();
  std::error_code status;
  if (out) std::filesystem::rename(written, file_, status);
  if (!out || status) throw_error(ErrorCode::storage, file_, " cannot be written");
  new_ = false;
}

}  // namespace prun::cuda
