// Packages include this first in every file: of all that they call of the C++ library,
// std::condition_variable::wait alone would need GCC 12's. Newer libraries have GCC 11's symbol as well, and
// it does the same.
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
