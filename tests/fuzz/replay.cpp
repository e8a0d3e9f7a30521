// Runs a fuzz entry once for every input of a file: u32 length, little-endian, and the bytes, again and
// again. What a fuzzer has once found or reached stays tested without it.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int, char** arguments) {
  std::ifstream in(arguments[1], std::ios::binary);
  int inputs = 0;
  for (std::uint8_t length[4]; in.read(reinterpret_cast<char*>(length), 4); ++inputs) {
    std::vector<std::uint8_t> input(length[0] | length[1] << 8 | length[2] << 16 |
                                    std::size_t{length[3]} << 24);
    if (!in.read(reinterpret_cast<char*>(input.data()), static_cast<std::streamsize>(input.size()))) return 2;
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 2;
}
