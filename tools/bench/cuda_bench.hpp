// Holds what the benches of CUDA kernels share: device memory with random values, times, and results as a
// printed table and as JSON.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "prun/error.hpp"
#include "prun/types.hpp"

namespace prun::bench {

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw_error(ErrorCode::internal, "CUDA: ", cudaGetErrorString(status));
}

template <class T>
constexpr std::int64_t size = static_cast<std::int64_t>(sizeof(T));

inline std::string by(std::int64_t rows, std::int64_t width) {
  return std::to_string(rows) + "×" + std::to_string(width);
}

// Holds random values of every type: bf16 numbers in (-1, 1), which read as float or double are small numbers
// too.
class Pool {
 public:
  explicit Pool(std::int64_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&memory_, static_cast<std::size_t>(bytes)));
    check(cudaMalloc(&random_, static_cast<std::size_t>(random_bytes)));
    std::vector<bf16> block(static_cast<std::size_t>(random_bytes) / sizeof(bf16));
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (bf16& value : block) value = bf16(uniform(generator));
    check(cudaMemcpy(random_, block.data(), static_cast<std::size_t>(random_bytes), cudaMemcpyHostToDevice));
  }
  ~Pool() { cudaFree(memory_), cudaFree(random_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void reset() { used_ = 0; }
  template <class T>
  T* take(std::int64_t elements) {
    const std::int64_t at = used_;
    used_ += (elements * size<T> + 255) / 256 * 256;
    PRUN_CHECK(used_ <= bytes_, "the pool is too small");
    char* to = static_cast<char*>(memory_) + at;
    fill(to, elements * size<T>);
    return reinterpret_cast<T*>(to);
  }
  template <class T>
  T* take(const std::vector<T>& values) {
    T* to = take<T>(static_cast<std::int64_t>(values.size()));
    check(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return to;
  }
  double* number(double x) { return take(std::vector<double>{x}); }

 private:
  // Copies the block, then what is filled already, as often as it fits.
  void fill(char* to, std::int64_t bytes) {
    const auto copy = [&](const void* from, std::int64_t at, std::int64_t count) {
      check(cudaMemcpy(to + at, from, static_cast<std::size_t>(count), cudaMemcpyDeviceToDevice));
    };
    std::int64_t filled = std::min(bytes, random_bytes);
    copy(random_, 0, filled);
    for (std::int64_t more; filled < bytes; filled += more) {
      more = std::min(filled, bytes - filled);
      copy(to, filled, more);
    }
  }

  static constexpr std::int64_t random_bytes = std::int64_t{8} << 20;
  std::int64_t bytes_, used_ = 0;
  void *memory_ = nullptr, *random_ = nullptr;
};

class Timer {
 public:
  Timer() { check(cudaEventCreate(&begin_)), check(cudaEventCreate(&end_)); }
  ~Timer() { cudaEventDestroy(begin_), cudaEventDestroy(end_); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Returns the seconds of one launch: the median of some groups, each of several milliseconds.
  double operator()(const std::function<void()>& launch) const {
    launch();
    const double once = group(launch, 2);
    const int count = std::clamp(static_cast<int>(4e-3 / once), 3, 200);
    std::vector<double> times(7);
    for (double& time : times) time = group(launch, count);
    std::nth_element(times.begin(), times.begin() + 3, times.end());
    return times[3];
  }

  // Returns the seconds of one launch out of `count`.
  double group(const std::function<void()>& launch, int count) const {
    check(cudaEventRecord(begin_));
    for (int i = 0; i < count; ++i) launch();
    check(cudaEventRecord(end_));
    check(cudaEventSynchronize(end_));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e-3 / count;
  }

 private:
  cudaEvent_t begin_, end_;
};

// Draws tokens evenly, or as in text: the k-th most frequent one about 1/k as often as the first.
inline std::vector<std::int32_t> tokens(std::int64_t count, std::int64_t vocab, bool text) {
  std::mt19937 generator(2);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<std::int32_t> all(static_cast<std::size_t>(count));
  for (std::int32_t& token : all) {
    const double u = uniform(generator), most = static_cast<double>(vocab);
    token = static_cast<std::int32_t>(std::min(most - 1, text ? std::pow(most, u) - 1 : u * most));
  }
  return all;
}

// Is one field of a result: its column's name and its text.
struct Cell {
  std::string column;
  std::string text;
  bool number;
};

inline Cell cell(const std::string& column, const std::string& text) { return {column, text, false}; }
inline Cell cell(const std::string& column, double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return {column, std::isfinite(number) ? text : "null", true};
}

// Prints results as they come, and writes them at the end to a file as a JSON array, if it has a name.
class Results {
 public:
  explicit Results(std::string file) : file_(std::move(file)) {}

  // A row with other columns than the last one begins another table.
  void add(const std::vector<Cell>& row) {
    std::string header = "|", rule = "|", line = "|", object;
    for (const Cell& c : row) {
      header += ' ' + c.column + " |", rule += "---|", line += ' ' + c.text + " |";
      object += (object.empty() ? "" : ", ") + quoted(c.column) + ": " + (c.number ? c.text : quoted(c.text));
    }
    if (header != header_) std::printf("\n%s\n%s\n", header.c_str(), rule.c_str());
    header_ = header;
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    objects_.push_back("{" + object + "}");
  }
  void write() const {
    if (file_.empty()) return;
    std::ofstream out(file_);
    for (std::size_t i = 0; i < objects_.size(); ++i) out << (i == 0 ? "[\n" : ",\n") << objects_[i];
    out << "\n]\n";
    out.close();
    if (!out) throw_error(ErrorCode::storage, file_, " cannot be written");
  }

 private:
  static std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (char c : text) (c == '"' || c == '\\' ? result += '\\' : result) += c;
    return result + '"';
  }
  std::string file_, header_;
  std::vector<std::string> objects_;
};

// Runs a bench with its results and its arguments: [PART OF A NAME [FILE FOR JSON]].
inline int run(const char* name, int count, char** arguments,
               const std::function<void(const std::string& filter, Results&)>& bench) {
  try {
    Results results(count > 2 ? arguments[2] : "");
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0));
    results.add({cell("device", device.name), cell("multiprocessors", device.multiProcessorCount, 0)});
    bench(count > 1 ? arguments[1] : "", results);
    results.write();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace prun::bench
