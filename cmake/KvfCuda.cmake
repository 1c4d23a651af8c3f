# CUDA: which GPUs code is made for, and the runtime. The runtime is linked statically and looks for the
# driver when it is first called, so that what is built here starts without GPU or driver.
if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${KVFERRY_NVCC}")
endif()
# A100, H100 and H200, B200; what comes later compiles the intermediate code of the last.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "GPUs to make code for")
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13 REQUIRED)
