// The functions of CUDA's libraries whose results onnxruntime reads when it opens a session: one device of compute
// capability 9.0, whose memory is the host's. `cuda_placement.py` adds the others, which do nothing.
#include <stdlib.h>
#include <string.h>

struct Properties {  // cudaDeviceProp up to CUDA 13
  char name[256], ids[32];
  size_t memory, memory_of_block;
  int registers, warp;
  size_t pitch;
  int threads, block[3], grid[3];
  size_t constants;
  int major, minor, others[160];
};

static int handle;
static void* binary[8];

// $FAKE_CUDA_MOST is the size from which an allocation fails.
static int allocate(void** place, size_t size) {
  const char* most = getenv("FAKE_CUDA_MOST");
  *place = most && size >= strtoul(most, NULL, 10) ? NULL : calloc(1, size ? size : 1);
  return *place ? 0 : 2;
}

static int give(void** place) {
  *place = &handle;
  return 0;
}

void** __cudaRegisterFatBinary(void* unused) { return binary; }
int cudaGetDeviceCount(int* count) { return *count = 1, 0; }
int cudaGetDevice(int* device) { return *device = 0; }
// $FAKE_CUDA_FAILS is the error with which the device cannot be chosen.
int cudaSetDevice(int device) { return atoi(getenv("FAKE_CUDA_FAILS") ? getenv("FAKE_CUDA_FAILS") : "0"); }
int cudaDriverGetVersion(int* version) { return *version = 13000, 0; }
int cudaRuntimeGetVersion(int* version) { return *version = 13000, 0; }
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1024, 0;
}
int cudaGetDeviceProperties(struct Properties* found, int device) {
  struct Properties made = {.name = "fake",
                            .memory = 1ul << 34,
                            .memory_of_block = 49152,
                            .registers = 65536,
                            .warp = 32,
                            .pitch = 1ul << 31,
                            .threads = 1024,
                            .block = {1024, 1024, 1024},
                            .grid = {1 << 30, 65535, 65535},
                            .constants = 65536,
                            .major = 9};
  for (int place = 0; place < 160; ++place) made.others[place] = 128;
  return *found = made, 0;
}

int cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = 1ul << 34, 0; }
int cudaMalloc(void** place, size_t size) { return allocate(place, size); }
int cudaMallocAsync(void** place, size_t size, void* stream) { return allocate(place, size); }
int cudaMallocHost(void** place, size_t size) { return allocate(place, size); }
int cudaMallocManaged(void** place, size_t size, unsigned flags) { return allocate(place, size); }
int cudaHostAlloc(void** place, size_t size, unsigned flags) { return allocate(place, size); }
int cudaFree(void* place) { return free(place), 0; }
int cudaFreeAsync(void* place, void* stream) { return free(place), 0; }
int cudaFreeHost(void* place) { return free(place), 0; }
int cudaMemcpy(void* to, const void* from, size_t size, int kind) { return memcpy(to, from, size), 0; }
int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void* stream) {
  return memcpy(to, from, size), 0;
}
int cudaMemset(void* place, int value, size_t size) { return memset(place, value, size), 0; }
int cudaMemsetAsync(void* place, int value, size_t size, void* stream) { return memset(place, value, size), 0; }
int cudaPointerGetAttributes(void* found, const void* place) { return memset(found, 0, 32), 0; }

int cudaStreamCreate(void** stream) { return give(stream); }
int cudaStreamCreateWithFlags(void** stream, unsigned flags) { return give(stream); }
int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) { return give(stream); }
int cudaStreamIsCapturing(void* stream, int* status) { return *status = 0; }
int cudaLaunchHostFunc(void* stream, void (*call)(void*), void* given) { return call(given), 0; }
int cudaStreamEndCapture(void* stream, void** graph) { return give(graph); }
int cudaEventCreate(void** event) { return give(event); }
int cudaEventCreateWithFlags(void** event, unsigned flags) { return give(event); }
const char* cudaGetErrorString(int error) { return error == 2 ? "out of memory" : "an error of the fake device"; }
const char* cudaGetErrorName(int error) { return "fake"; }
int cublasCreate_v2(void** made) { return give(made); }
int cublasLtCreate(void** made) { return give(made); }
size_t cudnnGetVersion(void) { return 91000; }
const char* cudnnGetErrorString(int error) { return "an error of the fake device"; }
int cudnnCreate(void** made) { return give(made); }
int cudnnDropoutGetStatesSize(void* handle, size_t* size) { return *size = 64, 0; }
int cudnnGetRNNWeightSpaceSize(void* handle, void* rnn, size_t* size) { return *size = 1 << 16, 0; }
int cudnnGetRNNTempSpaceSizes(void* handle, void* rnn, int mode, void* x, size_t* work, size_t* reserve) {
  return *work = *reserve = 1 << 16, 0;
}
int cudnnGetRNNWeightParams(void* handle, void* rnn, int layer, size_t size, const void* space, int part, void* matrix,
                            void** of_matrix, void* bias, void** of_bias) {
  return give(of_matrix), give(of_bias);
}
int cudnnGetTensorNdDescriptor(void* tensor, int most, int* type, int* rank, int* sizes, int* strides) {
  memset(sizes, 0, most * sizeof *sizes);  // nothing is copied
  memset(strides, 0, most * sizeof *strides);
  return *rank = most, strides[most - 1] = 1, 0;
}
